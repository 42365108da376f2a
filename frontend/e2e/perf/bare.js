import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from '@tanstack/virtual-core'
import { lines } from '../../src/api/transport'

// A virtual list and nothing else: the rows that the timeline has, as one line of
// text each, put in once a frame. What the timeline is measured against.
export async function bare(signal) {
  const box = document.createElement('div')
  box.style.cssText = 'position:fixed;inset:0 auto 60px 0;width:440px;overflow:auto;contain:strict;overflow-anchor:none'
  const space = document.createElement('div')
  space.style.position = 'relative'
  box.append(space)
  document.body.append(box)
  const rows = []
  const byStep = new Map()
  const drawn = new Map()
  const options = () => ({
    count: rows.length, getScrollElement: () => box, estimateSize: () => 30, overscan: 8, scrollToFn: elementScroll, observeElementRect, observeElementOffset, onChange: draw,
  })
  const v = new Virtualizer(options())
  v._didMount()
  v._willUpdate()
  let pinned = true
  box.addEventListener('scroll', () => (pinned = box.scrollHeight - box.scrollTop - box.clientHeight < 24 || (pinned && box.scrollTop >= last)), { passive: true })
  let last = 0
  function draw() {
    if (v.options.count !== rows.length) v.setOptions(options())
    const size = v.getTotalSize()
    if (pinned) v.scrollOffset = Math.max(0, size - (v.scrollRect?.height ?? 0))
    space.style.height = `${size}px`
    const now = new Set()
    for (const i of v.getVirtualItems()) {
      now.add(i.index)
      let el = drawn.get(i.index)
      if (!el) {
        el = document.createElement('div')
        el.style.cssText = 'position:absolute;top:0;left:0;right:0;height:30px;white-space:nowrap;overflow:hidden;line-height:30px'
        drawn.set(i.index, el)
        space.append(el)
      }
      el.style.transform = `translateY(${i.start}px)`
      if (el.textContent !== rows[i.index].text) el.textContent = rows[i.index].text
    }
    for (const [i, el] of drawn) {
      if (now.has(i)) continue
      el.remove()
      drawn.delete(i)
    }
    if (pinned) box.scrollTop = last = Math.max(0, size - box.clientHeight)
  }
  let due = false
  let stored = 0
  for await (const l of lines('/v1/events?after=0', signal)) {
    if (!l) continue
    const e = JSON.parse(l)
    if (e.id > 0) stored++
    const d = e.data
    if (e.type === 'step.requested') {
      const row = { text: `${d.number} ${d.tool} ${d.title}` }
      byStep.set(e.step_id, row)
      rows.push(row)
    } else if (e.type === 'step.ended') byStep.get(e.step_id).text += ` ${d.outcome} ${d.duration_ms} ms`
    else if (e.type === 'turn.started' || e.type === 'message') rows.push({ text: d.prompt ?? d.text })
    else if (e.type === 'approval.requested') rows.push({ text: d.title })
    if (!due) {
      due = true
      requestAnimationFrame(() => {
        due = false
        draw()
      })
    }
  }
  draw()
  return { rows: rows.length, stored }
}
