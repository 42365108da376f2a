// Entry: puts one object into the isolated world this runs in. The page's own
// scripts live in another world and can neither see nor change it.
import * as act from "./act";
import { clean, elementOf, numberOf } from "./dom";
import { delta, mark, walk, type Box } from "./walk";

const need = (n: number): Element => {
  const el = elementOf(n);
  if (!el || !el.isConnected) throw new Error("stale");
  return el;
};

const api = {
  nonce: "",
  walk: (all: boolean, clip: Box | null, max: number) => walk(all, clip, max),
  mark,
  delta,
  info: () => {
    const nav = performance.getEntriesByType("navigation")[0] as (PerformanceNavigationTiming & { responseStatus?: number }) | undefined;
    return { url: location.href.slice(0, 4096), title: clean(document.title, 300), status: nav?.responseStatus ?? 0, state: document.readyState };
  },
  size: () => {
    const d = document.documentElement, b = document.body;
    return { w: Math.max(d?.scrollWidth ?? 0, b?.scrollWidth ?? 0, innerWidth), h: Math.max(d?.scrollHeight ?? 0, b?.scrollHeight ?? 0, innerHeight) };
  },
  // Where the content of a frame element lies, for clipping what is in view there.
  frameBox: (n: number): Box => {
    const el = need(n) as HTMLElement;
    const r = el.getBoundingClientRect();
    return { x: -Math.min(r.left, 0), y: -Math.min(r.top, 0), w: Math.min(r.right, innerWidth) - Math.max(r.left, 0), h: Math.min(r.bottom, innerHeight) - Math.max(r.top, 0) };
  },
  number: (el: Element) => numberOf(el),
  identify: act.identify,
  ready: act.ready,
  confirm: act.confirm,
  lift: (owner: Element, x: number, y: number) => act.lift(owner, x, y),
  arm: (n: number, typing: boolean) => { act.arm(need(n), true, typing); },
  armOwner: (owner: Element) => { act.arm(owner, false, false); },
  disarm: act.disarm,
  observe: act.observe,
  settle: act.settle,
  frame: act.frame,
  focus: (n: number) => act.focusOn(need(n)),
  select: (n: number, end: boolean) => act.selectIn(need(n), end),
  readyToSelect: (n: number) => act.readyToSelect(need(n)),
  option: (n: number, wanted: string) => act.option(need(n), wanted),
  field: (n: number) => act.field(need(n)),
};

export type Api = typeof api;

const world = globalThis as unknown as { __glasshouse?: Api };
world.__glasshouse ??= api;
