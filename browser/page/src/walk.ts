// The snapshot walker: one pass over the composed tree gives the lines of a page.
import { clean, hiddenFromAll, kids, numberOf, rendered, visible } from "./dom";
import { isAction, isContainer, labelsOf, levelOf, nameOf, roleOf, standsIn, statesOf, takesContent, valueOf } from "./names";

// One line. k: a acts, h heading, t text, c container, i image, f frame.
export interface Item {
  k: string;
  d: number; // depth
  r?: string; // role
  n?: string; // name or text
  s?: string[]; // states
  v?: string; // value
  i?: number; // number of the element, for a and f
  x?: 1; // not in view
}

export interface Box { x: number; y: number; w: number; h: number }

export interface Walk {
  items: Item[];
  more: number; // lines not in items
  url: string;
  title: string;
  status: number;
}

const maxDepth = 300;
const maxChars = 2_000_000; // of all lines of one document

interface Clip { l: number; t: number; r: number; b: number }

export function walk(all: boolean, clipBox: Box | null, maxItems: number): Walk {
  const items: Item[] = [];
  let more = 0;
  let chars = 0;
  const view: Clip = { l: 0, t: 0, r: innerWidth, b: innerHeight };
  if (clipBox) {
    view.l = Math.max(view.l, clipBox.x);
    view.t = Math.max(view.t, clipBox.y);
    view.r = Math.min(view.r, clipBox.x + clipBox.w);
    view.b = Math.min(view.b, clipBox.y + clipBox.h);
  }
  const seen = (r: DOMRect, c: Clip) => r.width > 0 && r.height > 0 && r.right > c.l && r.left < c.r && r.bottom > c.t && r.top < c.b;

  // Containers are written only once something inside them is.
  const open: { item: Item; done: boolean }[] = [];
  const put = (it: Item) => {
    if (!all && it.x) { more++; return; }
    chars += (it.n?.length ?? 0) + (it.v?.length ?? 0);
    if (items.length >= maxItems || chars > maxChars) { more++; return; }
    let d = 0;
    for (const o of open) {
      if (!o.done) { o.done = true; o.item.d = d; items.push(o.item); }
      d++;
    }
    it.d = d;
    items.push(it);
  };

  let text = "";
  let textSeen = false;
  const flush = () => {
    if (text) {
      const t = clean(text, 1000);
      if (t) put({ k: "t", d: 0, n: t, ...(textSeen ? {} : { x: 1 as const }) });
    }
    text = "";
    textSeen = false;
  };

  const range = document.createRange();
  // hush: the text below is already in the name of an element above.
  const visit = (n: Node, depth: number, clip: Clip, hush: boolean, shown: boolean) => {
    if (n instanceof Text) {
      if (hush || !shown) return;
      if (!/\S/.test(n.data)) { if (text) text += " "; return; }
      range.selectNodeContents(n);
      const r = range.getBoundingClientRect();
      if (r.width === 0 || r.height === 0) return;
      if (text.length < 4000) text += n.data;
      if (seen(r, clip)) textSeen = true;
      return;
    }
    if (!(n instanceof Element) || depth > maxDepth) return;
    switch (n.localName) {
      case "script": case "style": case "noscript": case "template": case "head": return;
      case "br": text += " "; return;
    }
    if (hiddenFromAll(n)) return;
    const style = getComputedStyle(n);
    if (style.display === "none" || (style.display !== "contents" && !rendered(n))) return;
    const isShown = style.visibility === "visible";
    const inline = style.display.startsWith("inline") || style.display === "contents";
    if (!inline) flush();

    let inner = clip;
    if (style.position === "fixed" || style.position === "absolute") inner = view;
    const rect = n.getBoundingClientRect();
    const inView = seen(rect, inner);
    const area = rect.width > 0 && rect.height > 0;

    if (n.localName === "iframe" || n.localName === "frame") {
      flush();
      if (isShown && area) put({ k: "f", d: 0, r: "iframe", n: clean(n.getAttribute("title") || (n as HTMLIFrameElement).name || "", 80), i: numberOf(n), ...(inView ? {} : { x: 1 as const }) });
      return;
    }

    const role = roleOf(n, style);
    let closeWhen = -1;
    if (isShown && area && isAction(role) && !replacedByLabel(n, rect)) {
      flush();
      put(action(n, role, n, inView));
      if (n instanceof HTMLSelectElement) return;
      if (takesContent(role)) hush = true;
      else if (role === "textbox" || role === "searchbox") { if (!n.shadowRoot) return; hush = true; }
    } else if (isShown && role === "heading") {
      flush();
      const name = nameOf(n, role);
      if (name) hush = true;
      if (name) put({ k: "h", d: 0, r: "heading", n: name, s: ["level=" + levelOf(n)], ...(inView ? {} : { x: 1 as const }) });
    } else if (isShown && role === "img" && area && !hush) {
      flush();
      const name = nameOf(n, role);
      if (name) put({ k: "i", d: 0, r: "img", n: name, ...(inView ? {} : { x: 1 as const }) });
      if (n.localName === "svg") return;
    } else if (isContainer(role)) {
      flush();
      const name = nameOf(n, role);
      closeWhen = open.length;
      open.push({ item: { k: "c", d: 0, r: role, n: name, s: statesOf(n, role) }, done: false });
    } else if (n instanceof HTMLLabelElement && isShown && area) {
      // A drawn label over a control that is not: the label is what a person uses.
      const c = n.control;
      if (c && labelsOf(c)[0] === n && replacedByLabel(c, c.getBoundingClientRect())) {
        flush();
        put(action(c, roleOf(c), n, inView));
        hush = true;
      } else if (c && visible(c) && !hiddenFromAll(c)) {
        flush();
        hush = true; // its words are the name of the control
      }
    }
    if (n.localName === "svg") return;

    if (style.overflowX !== "visible" || style.overflowY !== "visible") {
      if (area && n !== document.body && n !== document.documentElement) {
        inner = { l: Math.max(inner.l, rect.left), t: Math.max(inner.t, rect.top), r: Math.min(inner.r, rect.right), b: Math.min(inner.b, rect.bottom) };
      }
    }
    for (const k of kids(n)) visit(k, depth + 1, inner, hush, isShown);
    if (!inline) flush();
    if (closeWhen >= 0) { flush(); open.length = closeWhen; }
  };

  const root = document.body ?? document.documentElement;
  if (root) visit(root, 0, view, false, true);
  flush();
  const nav = performance.getEntriesByType("navigation")[0] as (PerformanceNavigationTiming & { responseStatus?: number }) | undefined;
  return {
    items,
    more,
    url: location.href.slice(0, 4096),
    title: clean(document.title, 300),
    status: nav?.responseStatus ?? 0,
  };
}

// A control that is not drawn, while its label is.
function replacedByLabel(c: Element, r: DOMRect): boolean {
  if (!standsIn(c)) return false;
  if (c.checkVisibility({ visibilityProperty: true }) && r.width >= 2 && r.height >= 2) return false;
  const l = labelsOf(c)[0];
  return !!l && visible(l);
}

function action(of: Element, role: string, drawn: Element, inView: boolean): Item {
  const v = valueOf(of, role);
  const it: Item = { k: "a", d: 0, r: role, n: nameOf(of, role), s: statesOf(of, role), i: numberOf(drawn) };
  if (v !== null) it.v = v;
  if (!inView) it.x = 1;
  return it;
}

// What the lines were when mark ran, so that only what changed goes to the host.
let marked: Map<string, { it: Item; count: number }> | null = null;

const keyOf = (it: Item) => JSON.stringify([it.k, it.r, it.n, it.s, it.v, it.i]);

export function mark(maxItems: number): void {
  marked = new Map();
  for (const it of walk(true, null, maxItems).items) {
    const key = keyOf(it);
    const m = marked.get(key);
    if (m) m.count++;
    else marked.set(key, { it, count: 1 });
  }
}

export interface Delta { came: Item[]; went: Item[]; more: number; url: string; title: string; status: number }

export function delta(maxItems: number, maxLines: number): Delta {
  const w = walk(true, null, maxItems);
  const old = marked ?? new Map<string, { it: Item; count: number }>();
  marked = null;
  const came: Item[] = [];
  const went: Item[] = [];
  let more = 0;
  for (const it of w.items) {
    const m = old.get(keyOf(it));
    if (m && m.count > 0) m.count--;
    else if (came.length < maxLines) came.push(it);
    else more++;
  }
  for (const m of old.values()) {
    for (; m.count > 0; m.count--) {
      if (went.length < maxLines) went.push(m.it);
      else more++;
    }
  }
  return { came, went, more, url: w.url, title: w.title, status: w.status };
}
