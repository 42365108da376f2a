// What has to hold before, during and after a press. The host sends the input;
// this side only looks, scrolls, and stops events that would hit the wrong element.
import { deepActive, deepAt, describe, elementOf, up, visible, within } from "./dom";
import { editRoot, isAction, isDisabled, isSecret, nameOf, plainValue, roleOf, standsIn } from "./names";

export interface Ready {
  st: "ok" | "stale" | "wait" | "never"; // never: waiting will not help
  why?: string;
  x?: number;
  y?: number;
}

export const frame = () => new Promise<void>((done) => {
  let over = false;
  const end = () => { if (!over) { over = true; done(); } };
  requestAnimationFrame(end);
  setTimeout(end, 100); // a hidden page draws no frames
});
const pause = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));

// The element, or its control when the line was a drawn label.
function subject(el: Element): Element {
  return el instanceof HTMLLabelElement && standsIn(el.control) ? el.control : el;
}

export interface Identity { st: "ok" | "stale"; why?: string; role?: string; name?: string }

export function identify(n: number, role: string, name: string): Identity {
  const el = elementOf(n);
  if (!el || !el.isConnected) return { st: "stale", why: "the element is no longer in the page" };
  const s = subject(el);
  const r = roleOf(s, s instanceof HTMLElement ? getComputedStyle(s) : undefined);
  const nm = nameOf(s, r);
  if (r !== role) return { st: "stale", why: `it was ${role}, now it is ${r || "plain text"}`, role: r, name: nm };
  if (nm !== name) return { st: "stale", why: `its name was ${JSON.stringify(name)}, now it is ${JSON.stringify(nm)}`, role: r, name: nm };
  return { st: "ok", role: r, name: nm };
}

const textTypes = new Set(["text", "search", "email", "url", "tel", "password", "number"]);

// Why el never takes typed text, or "".
function noField(el: Element): string {
  if (el instanceof HTMLInputElement) return textTypes.has(el.type) ? "" : `an input of type ${el.type} takes no typed text`;
  if (el instanceof HTMLTextAreaElement) return "";
  if (el instanceof HTMLSelectElement) return "it is a drop-down list, which takes no typed text";
  if (el instanceof HTMLElement && el.isContentEditable) return "";
  return "it is not a field that takes text";
}

// What a press on hit acts for: the element itself, or a control inside it or a
// label. Anything else is another element.
function related(el: Element, hit: Element | null, typing: boolean): boolean {
  const s = subject(el);
  for (let e: Element | null = hit; e; e = up(e)) {
    if (e === el || e === s) return true;
    if (e instanceof HTMLLabelElement && e.control) return e.control === s;
    // A control of its own, inside el or over it: pressing it is another action.
    if (!typing && isAction(roleOf(e))) return false;
  }
  return false;
}

function points(el: Element): [number, number][] {
  const out: [number, number][] = [];
  for (const r of Array.from(el.getClientRects()).slice(0, 3)) {
    const l = Math.max(r.left, 0), t = Math.max(r.top, 0);
    const w = Math.min(r.right, innerWidth) - l, h = Math.min(r.bottom, innerHeight) - t;
    if (w < 1 || h < 1) continue;
    for (const [fx, fy] of [[0.5, 0.5], [0.25, 0.5], [0.75, 0.5], [0.5, 0.25], [0.5, 0.75], [0.1, 0.1]] as const) out.push([l + w * fx, t + h * fy]);
  }
  return out;
}

function centred(el: Element): boolean {
  const r = el.getClientRects()[0];
  if (!r) return false;
  const x = r.left + r.width / 2, y = r.top + r.height / 2;
  return x >= 0 && y >= 0 && x < innerWidth && y < innerHeight;
}

const alignments: ScrollIntoViewOptions[] = [
  { block: "center", inline: "center" }, { block: "end", inline: "end" },
  { block: "start", inline: "start" }, { block: "nearest", inline: "nearest" },
];

// Waits up to budget ms until the element can be pressed, and says where.
// typing also asks that it takes text. turn picks the scroll alignment, so that
// a later try can uncover what a sticky bar hides.
export async function ready(n: number, typing: boolean, budget: number, turn: number): Promise<Ready> {
  const until = performance.now() + budget;
  let why = "";
  for (let i = 0; ; i++) {
    const el = elementOf(n);
    if (!el || !el.isConnected) return { st: "stale", why: "the element is no longer in the page" };
    const s = subject(el);
    why = "";
    if (!visible(el)) why = "it is not visible";
    else if (isDisabled(s)) why = "it is disabled";
    else if (typing) {
      why = noField(s);
      if (why) return { st: "never", why };
      if ((s as HTMLInputElement).readOnly) why = "it is read-only";
    }
    if (!why) {
      if (i === 0 && (turn > 0 || !centred(el))) el.scrollIntoView({ ...alignments[turn % alignments.length], behavior: "instant" });
      const a = el.getBoundingClientRect();
      await frame();
      await frame();
      const b = el.getBoundingClientRect();
      if (a.x !== b.x || a.y !== b.y || a.width !== b.width || a.height !== b.height) why = "it is moving";
      else {
        const ps = points(el);
        if (!ps.length) why = "it lies outside the page's view and cannot be scrolled to";
        let first: Element | null = null;
        for (const [x, y] of ps) {
          const hit = deepAt(x, y);
          if (related(el, hit, typing)) return { st: "ok", x, y };
          first ??= hit;
        }
        if (ps.length) why = `it is covered by ${describe(first)}`;
      }
    }
    if (performance.now() >= until) return { st: "wait", why };
    await pause(40);
  }
}

// Once more, just before the press: the same point still hits the element.
export function confirm(n: number, x: number, y: number, typing: boolean): Ready {
  const el = elementOf(n);
  if (!el || !el.isConnected) return { st: "stale", why: "the element is no longer in the page" };
  const hit = deepAt(x, y);
  return related(el, hit, typing) ? { st: "ok", x, y } : { st: "wait", why: `it is covered by ${describe(hit)}` };
}

// A point of a frame's content, in the coordinates of the document that holds it.
export function lift(owner: Element, x: number, y: number): Ready {
  if (!owner.isConnected) return { st: "stale", why: "its frame is no longer in the page" };
  for (let e: Element | null = owner; e; e = up(e)) {
    const t = getComputedStyle(e).transform;
    if (t && t !== "none") {
      const m = new DOMMatrix(t);
      if (!m.is2D || Math.abs(m.b) > 1e-6 || Math.abs(m.c) > 1e-6) return { st: "wait", why: "its frame is rotated or skewed" };
    }
  }
  const o = owner as HTMLElement;
  const r = owner.getBoundingClientRect();
  if (!r.width || !r.height || !o.offsetWidth || !o.offsetHeight) return { st: "wait", why: "its frame is not visible" };
  const cs = getComputedStyle(owner);
  const px = r.left + ((o.clientLeft + parseFloat(cs.paddingLeft) + x) * r.width) / o.offsetWidth;
  const py = r.top + ((o.clientTop + parseFloat(cs.paddingTop) + y) * r.height) / o.offsetHeight;
  const hit = deepAt(px, py);
  if (hit !== owner) return { st: "wait", why: `its frame is covered by ${describe(hit)}`, x: px, y: py };
  return { st: "ok", x: px, y: py };
}

// The guard: from arming to disarming, a trusted press that lands anywhere but on
// the element is stopped before the page sees it.
const guardTime = 10_000; // ms; a host that went away must not leave a page unusable
interface Guard { el: Element; sees: boolean; typing: boolean; until: number; ok: boolean | null; why: string }
let guard: Guard | null = null;
const guarded = ["pointerdown", "mousedown", "pointerup", "mouseup", "click", "auxclick", "dblclick", "contextmenu", "touchstart"];

function onPress(e: Event) {
  if (!guard || !e.isTrusted || performance.now() > guard.until) return;
  if (guard.ok === null) {
    const at = e.composedPath()[0];
    const hit = at instanceof Element ? at : null;
    guard.ok = guard.sees && related(guard.el, hit, guard.typing);
    if (!guard.ok) guard.why = `${guard.sees ? "it" : "its frame"} is covered by ${describe(hit)}`;
  }
  if (!guard.ok) {
    e.preventDefault();
    e.stopImmediatePropagation();
  }
}

// sees: the element lives in this document (else it is the frame that holds it,
// and no press may land in this document at all).
export function arm(el: Element, sees: boolean, typing: boolean): void {
  disarm();
  guard = { el, sees, typing, until: performance.now() + guardTime, ok: null, why: "" };
  for (const t of guarded) window.addEventListener(t, onPress, { capture: true, passive: false });
}

export function disarm(): { ok: boolean | null; why: string } {
  const g = guard;
  guard = null;
  for (const t of guarded) window.removeEventListener(t, onPress, { capture: true });
  return { ok: g ? g.ok : null, why: g?.why ?? "" };
}

// Activity of the document, for telling when an action has had its effect.
let changes = 0;
let lastChange = 0;
let observer: MutationObserver | null = null;

export function observe(): void {
  observer?.disconnect();
  changes = 0;
  lastChange = performance.now();
  observer = new MutationObserver((l) => { changes += l.length; lastChange = performance.now(); });
  observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
}

// Two frames, then quiet for quietMs, at most maxMs.
export async function settle(quietMs: number, maxMs: number): Promise<number> {
  const end = performance.now() + maxMs;
  await frame();
  await frame();
  while (changes && performance.now() < end && performance.now() - lastChange < quietMs) await pause(20);
  return changes;
}

export function hasFocus(el: Element): boolean {
  const a = deepActive();
  if (!a) return false;
  if (a === el) return true;
  const root = editRoot(el);
  return !!root && (within(root, a) || within(a, el));
}

export function focusOn(el: Element): boolean {
  if (!hasFocus(el) && el instanceof HTMLElement) el.focus({ preventScroll: true });
  // The frame has to have it too: keys go to whatever is focused in the whole tab.
  return document.hasFocus() && hasFocus(el);
}

// Selects all of the field (or puts the caret at its end); "key" asks the host
// to press End, for fields without a selection of their own.
export function selectIn(el: Element, end: boolean): "ok" | "key" {
  if (el instanceof HTMLInputElement || el instanceof HTMLTextAreaElement) {
    if (!end) { el.select(); return "ok"; }
    try {
      el.setSelectionRange(el.value.length, el.value.length);
      return "ok";
    } catch {
      return "key";
    }
  }
  const r = document.createRange();
  r.selectNodeContents(editRoot(el) ?? el);
  if (end) r.collapse(false);
  const sel = (el.getRootNode() instanceof ShadowRoot ? null : getSelection()) ?? getSelection();
  sel?.removeAllRanges();
  sel?.addRange(r);
  return "ok";
}

export interface Field { value: string; secret: boolean; multiline: boolean; rich: boolean; max: number }

export function field(el: Element): Field {
  const input = el instanceof HTMLInputElement;
  const area = el instanceof HTMLTextAreaElement;
  return {
    value: (plainValue(el) ?? "").slice(0, 1_000_000),
    secret: isSecret(el),
    multiline: !input,
    rich: !input && !area,
    max: (input || area) && el.maxLength >= 0 ? el.maxLength : -1,
  };
}


export function readyToSelect(el: Element): Ready {
  if (!(el instanceof HTMLSelectElement)) return { st: "never", why: "it is not a drop-down list" };
  if (!visible(el)) return { st: "wait", why: "it is not visible" };
  if (isDisabled(el)) return { st: "wait", why: "it is disabled" };
  el.scrollIntoView({ block: "nearest", behavior: "instant" });
  const ps = points(el);
  for (const [x, y] of ps) if (related(el, deepAt(x, y), false)) return { st: "ok" };
  return { st: "wait", why: ps.length ? `it is covered by ${describe(deepAt(...ps[0]))}` : "it lies outside the page's view" };
}

// Finds the option with a label, else with a value.
export function option(el: Element, wanted: string): { at: number; want: number; same: number; label: string; off: boolean; multi: boolean } {
  const s = el as HTMLSelectElement;
  const all = Array.from(s.options);
  const plain = (t: string) => t.replace(/\s+/g, " ").trim();
  const named = all.filter((o) => plain(o.label) === plain(wanted));
  const o = named.length === 1 ? named[0] : all.find((x) => x.value === wanted) ?? named[0];
  const byValue = !!o && named.length !== 1 && o.value === wanted;
  return {
    at: s.selectedIndex,
    want: o ? o.index : -1,
    same: byValue ? 1 : named.length,
    label: o?.label.slice(0, 200) ?? "",
    off: !!o && (o.disabled || (o.parentElement instanceof HTMLOptGroupElement && o.parentElement.disabled)),
    multi: s.multiple,
  };
}
