// The composed tree: what is rendered, with open shadow roots and slots followed.

export function kids(n: Node): Iterable<Node> {
  if (n instanceof Element) {
    if (n.shadowRoot) return n.shadowRoot.childNodes;
    if (n instanceof HTMLSlotElement) {
      const given = n.assignedNodes();
      if (given.length) return given;
    }
  }
  return n.childNodes;
}

// The parent in the composed tree.
export function up(n: Node): Element | null {
  if (n instanceof Element || n instanceof Text) {
    const slot = n.assignedSlot;
    if (slot) return slot;
  }
  const p = n.parentNode;
  if (p instanceof ShadowRoot) return p.host;
  return p instanceof Element ? p : null;
}

export function within(outer: Node, inner: Node | null): boolean {
  for (let n: Node | null = inner; n; n = up(n)) if (n === outer) return true;
  return false;
}

export function deepActive(): Element | null {
  let a = document.activeElement;
  while (a?.shadowRoot?.activeElement) a = a.shadowRoot.activeElement;
  return a;
}

// The deepest rendered element at a point of this document's viewport.
export function deepAt(x: number, y: number): Element | null {
  let at = document.elementFromPoint(x, y);
  for (let i = 0; at?.shadowRoot && i < 100; i++) {
    const inner = at.shadowRoot.elementFromPoint(x, y);
    if (!inner || inner === at) break;
    at = inner;
  }
  return at;
}

export function rendered(el: Element): boolean {
  return el.checkVisibility({ contentVisibilityAuto: true });
}

export function visible(el: Element): boolean {
  if (!el.checkVisibility({ contentVisibilityAuto: true, visibilityProperty: true })) return false;
  const r = el.getBoundingClientRect();
  return r.width > 0 && r.height > 0;
}

export function hiddenFromAll(el: Element): boolean {
  return el.getAttribute("aria-hidden") === "true" || el.hasAttribute("inert");
}

// Text from a page is one line, without characters that hide or reorder others.
const odd = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ue000-\uf8ff]/g;

export function clean(s: string, max: number): string {
  let t = s.length > 4 * max + 400 ? s.slice(0, 4 * max + 400) : s;
  t = t.replace(/\s+/g, " ").replace(odd, "").replace(/ +/g, " ").trim();
  return t.length > max ? t.slice(0, max - 1).trimEnd() + "\u2026" : t;
}

// A short description of an element for messages: tag, id, first class, text.
export function describe(el: Element | null): string {
  if (!el) return "nothing";
  let s = el.tagName.toLowerCase();
  if (el.id) s += "#" + clean(el.id, 40);
  const cls = el.classList.item(0);
  if (cls) s += "." + clean(cls, 40);
  const label = el.getAttribute("aria-label") ?? el.textContent ?? "";
  const text = clean(label, 40);
  return text ? `${s} ${JSON.stringify(text)}` : s;
}

const serial = new WeakMap<Element, number>();
const byNumber = new Map<number, WeakRef<Element>>();
let last = 0;

// The number of an element in this document. Never reused.
export function numberOf(el: Element): number {
  let n = serial.get(el);
  if (!n) {
    n = ++last;
    serial.set(el, n);
    byNumber.set(n, new WeakRef(el));
  }
  return n;
}

export function elementOf(n: number): Element | null {
  const el = byNumber.get(n)?.deref();
  if (!el) byNumber.delete(n);
  return el ?? null;
}
