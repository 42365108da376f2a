// Shared by the fixture pages: logs every click-like event at the document, with
// what it hit and whether the browser made it, into <output id=log>.
const say = (s) => { const o = document.getElementById("log"); o.textContent = (o.textContent + " " + s).trim(); };
for (const t of ["mousedown", "click"]) addEventListener(t, (e) => {
  const at = e.composedPath()[0];
  say(`${t}:${at.id || at.localName || "?"}:${e.isTrusted ? "real" : "fake"}`);
});
