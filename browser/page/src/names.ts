// Roles, names, states and values, close to what assistive tools compute.
import { clean, hiddenFromAll, kids, rendered } from "./dom";

const actionRoles = new Set([
  "button", "link", "checkbox", "radio", "switch", "tab", "menuitem", "menuitemcheckbox", "menuitemradio",
  "option", "textbox", "searchbox", "combobox", "listbox", "slider", "spinbutton", "treeitem", "gridcell",
]);
const containerRoles = new Set([
  "main", "navigation", "banner", "contentinfo", "complementary", "search", "form", "region", "dialog",
  "alertdialog", "alert", "status", "list", "table", "grid", "menu", "menubar", "tablist", "tree", "group", "radiogroup",
]);
const known = new Set([...actionRoles, ...containerRoles, "heading", "img", "none", "presentation"]);
const fromContent = new Set([
  "button", "link", "checkbox", "radio", "switch", "tab", "menuitem", "menuitemcheckbox", "menuitemradio",
  "option", "treeitem", "gridcell", "heading", "clickable",
]);

export const isAction = (r: string) => actionRoles.has(r) || r === "clickable";
export const isContainer = (r: string) => containerRoles.has(r);
export const takesContent = (r: string) => fromContent.has(r);

const inputRoles: Record<string, string> = {
  button: "button", submit: "button", reset: "button", image: "button", file: "button", color: "button",
  checkbox: "checkbox", radio: "radio", range: "slider", number: "spinbutton", search: "searchbox",
};

export function editRoot(el: Element): HTMLElement | null {
  if (!(el instanceof HTMLElement) || !el.isContentEditable) return null;
  let e: HTMLElement = el;
  while (e.parentElement?.isContentEditable) e = e.parentElement;
  return e;
}

export function roleOf(el: Element, style?: CSSStyleDeclaration): string {
  const given = el.getAttribute("role");
  if (given) {
    for (const r of given.toLowerCase().split(/\s+/)) {
      if (r === "none" || r === "presentation") break;
      if (known.has(r)) return r;
    }
  }
  const r = nativeRole(el);
  if (r) return r;
  if (el instanceof HTMLElement) {
    if (el.isContentEditable && editRoot(el) === el) return "textbox";
    if (el === document.body || el === document.documentElement) return "";
    if (el.hasAttribute("onclick")) return "clickable";
    const ti = el.getAttribute("tabindex");
    if (ti !== null && Number(ti) >= 0) return "clickable";
    if (style?.cursor === "pointer" && !(el instanceof HTMLLabelElement)) {
      const p = el.parentElement;
      if (!p || getComputedStyle(p).cursor !== "pointer") return "clickable";
    }
  }
  return "";
}

function nativeRole(el: Element): string {
  switch (el.localName) {
    case "a": case "area": return el.hasAttribute("href") ? "link" : "";
    case "button": return "button";
    case "summary": return el.parentElement?.localName === "details" ? "button" : "";
    case "input": {
      const t = (el as HTMLInputElement).type;
      if (t === "hidden") return "";
      if ((el as HTMLInputElement).list && !inputRoles[t]) return "combobox";
      return inputRoles[t] ?? "textbox";
    }
    case "textarea": return "textbox";
    case "select": return (el as HTMLSelectElement).multiple || (el as HTMLSelectElement).size > 1 ? "listbox" : "combobox";
    case "option": return "option";
    case "h1": case "h2": case "h3": case "h4": case "h5": case "h6": return "heading";
    case "img": return (el as HTMLImageElement).alt ? "img" : "";
    case "svg": return el.getAttribute("aria-label") || el.querySelector(":scope > title") ? "img" : "";
    case "main": return "main";
    case "nav": return "navigation";
    case "dialog": return "dialog";
    case "form": return hasName(el) ? "form" : "";
    case "section": return hasName(el) ? "region" : "";
    case "fieldset": return "group";
    case "table": return "table";
    case "ul": case "ol": return "list";
    default: return "";
  }
}

function hasName(el: Element): boolean {
  return !!(el.getAttribute("aria-label") || el.getAttribute("aria-labelledby") || el.getAttribute("title"));
}

export function levelOf(el: Element): number {
  const l = Number(el.getAttribute("aria-level"));
  if (l > 0 && l < 20) return Math.floor(l);
  return /^h[1-6]$/.test(el.localName) ? Number(el.localName[1]) : 2;
}

const enough = 400;

// The text a reader would hear inside el.
export function contentText(el: Element, depth = 0): string {
  let out = "";
  for (const k of kids(el)) {
    if (out.length > enough) break;
    if (k instanceof Text) out += k.data;
    else if (k instanceof Element && depth < 40) {
      const display = getComputedStyle(k).display;
      if ((display !== "contents" && !rendered(k)) || hiddenFromAll(k)) continue;
      if (k.localName === "style" || k.localName === "script" || k.localName === "noscript") continue;
      const label = k.getAttribute("aria-label");
      const part = label?.trim() ? label
        : k instanceof HTMLImageElement ? k.alt
        : k.localName === "br" ? " "
        : k.localName === "svg" ? k.querySelector(":scope > title")?.textContent ?? ""
        : k instanceof HTMLInputElement || k instanceof HTMLTextAreaElement || k instanceof HTMLSelectElement ? ""
        : contentText(k, depth + 1);
      if (!part) continue;
      out += display.startsWith("inline") || display === "contents" ? part : ` ${part} `;
    }
  }
  return out;
}

function referenced(el: Element, attr: string): string {
  const ids = el.getAttribute(attr);
  if (!ids) return "";
  const root = el.getRootNode() as Document | ShadowRoot;
  const parts: string[] = [];
  for (const id of ids.trim().split(/\s+/).slice(0, 10)) {
    const r = root.getElementById?.(id);
    if (r) parts.push(r.getAttribute("aria-label")?.trim() || contentText(r) || r.textContent || "");
  }
  return parts.join(" ");
}

type Labelled = HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement | HTMLButtonElement;

export function labelsOf(el: Element): HTMLLabelElement[] {
  const ls = (el as Labelled).labels;
  return ls ? Array.from(ls).slice(0, 5) : [];
}

// Controls that pages hide and let their label stand in for.
export function standsIn(c: Element | null): c is HTMLInputElement {
  return c instanceof HTMLInputElement && (c.type === "checkbox" || c.type === "radio" || c.type === "file");
}

export function nameOf(el: Element, role: string): string {
  const pick = (s: string | null | undefined) => (s ? clean(s, 120) : "");
  let n = pick(referenced(el, "aria-labelledby")) || pick(el.getAttribute("aria-label"));
  if (n) return n;
  const labels = labelsOf(el);
  if (labels.length) n = pick(labels.map((l) => contentText(l)).join(" "));
  if (n) return n;
  if (el instanceof HTMLInputElement) {
    if (["button", "submit", "reset"].includes(el.type)) n = pick(el.value) || (el.type === "submit" ? "Submit" : el.type === "reset" ? "Reset" : "");
    else if (el.type === "image") n = pick(el.alt);
  } else if (el instanceof HTMLImageElement) n = pick(el.alt);
  else if (el.localName === "svg") n = pick(el.querySelector(":scope > title")?.textContent);
  else if (el.localName === "fieldset") {
    const lg = el.querySelector(":scope > legend");
    if (lg) n = pick(contentText(lg));
  } else if (el.localName === "table") n = pick((el as HTMLTableElement).caption?.textContent);
  if (!n && takesContent(role)) n = pick(contentText(el));
  return n || pick(el.getAttribute("title")) || pick(el.getAttribute("placeholder")) || pick(el.getAttribute("aria-placeholder"));
}

// Fields whose value is never shown. Once a password, always one: pages have
// buttons that turn the field into plain text.
const secretFields = new WeakSet<Element>();
const secretHints = /(^|\s)(current-password|new-password|one-time-code|cc-number|cc-csc|cc-exp(-month|-year)?)(\s|$)/;

export function isSecret(el: Element): boolean {
  if (secretFields.has(el)) return true;
  const is = (el instanceof HTMLInputElement && el.type === "password") || secretHints.test(el.getAttribute("autocomplete") ?? "");
  if (is) secretFields.add(el);
  return is;
}

export function isDisabled(el: Element): boolean {
  if (el.matches(":disabled")) return true;
  for (let e: Element | null = el; e; e = e.parentElement) if (e.getAttribute("aria-disabled") === "true") return true;
  return false;
}

export function statesOf(el: Element, role: string): string[] {
  const s: string[] = [];
  const aria = (n: string) => el.getAttribute("aria-" + n);
  if (role === "checkbox" || role === "radio" || role === "switch" || role.startsWith("menuitem")) {
    const i = el instanceof HTMLInputElement && (el.type === "checkbox" || el.type === "radio") ? el : null;
    if (i ? i.indeterminate : aria("checked") === "mixed") s.push("mixed");
    else if (i ? i.checked : aria("checked") === "true") s.push("checked");
  }
  if (isDisabled(el)) s.push("disabled");
  const exp = aria("expanded");
  if (exp === "true" || exp === "false") s.push(exp === "true" ? "expanded" : "collapsed");
  else if (el.localName === "summary") s.push((el.parentElement as HTMLDetailsElement).open ? "expanded" : "collapsed");
  if (aria("selected") === "true") s.push("selected");
  if (aria("pressed") === "true") s.push("pressed");
  const cur = aria("current");
  if (cur && cur !== "false") s.push("current");
  if (el.matches("input:required,textarea:required,select:required") || aria("required") === "true") s.push("required");
  if (aria("invalid") === "true" || (el.matches(":user-invalid"))) s.push("invalid");
  if ((el as HTMLInputElement).readOnly === true || aria("readonly") === "true") s.push("readonly");
  if (el instanceof HTMLInputElement && el.type === "file") s.push("file");
  return s;
}

export function plainValue(el: Element): string | null {
  if (el instanceof HTMLInputElement || el instanceof HTMLTextAreaElement) return el.value;
  if (el instanceof HTMLElement && el.isContentEditable) return el.innerText;
  return null;
}

export function valueOf(el: Element, role: string): string | null {
  if (isSecret(el)) return plainValue(el) ? "(hidden)" : null;
  if (el instanceof HTMLSelectElement) {
    const all = Array.from(el.options).slice(0, 12).map((o) => clean(o.label, 30));
    const on = Array.from(el.selectedOptions).slice(0, 12).map((o) => clean(o.label, 30)).join(", ");
    return `${on} of: ${all.join(" | ")}${el.options.length > 12 ? ` | +${el.options.length - 12} more` : ""}`;
  }
  if (el instanceof HTMLInputElement) {
    if (el.type === "file") return Array.from(el.files ?? []).slice(0, 5).map((f) => clean(f.name, 60)).join(", ") || null;
    if (["button", "submit", "reset", "image", "checkbox", "radio"].includes(el.type)) return null;
  }
  const v = plainValue(el);
  if (v !== null) return clean(v, 120) || null;
  if (role === "slider" || role === "spinbutton") return clean(el.getAttribute("aria-valuetext") ?? el.getAttribute("aria-valuenow") ?? "", 60) || null;
  return null;
}
