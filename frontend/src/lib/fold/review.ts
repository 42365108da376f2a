import type { Envelope } from '../../api/types'
import type { ReviewRow } from '../state'
import type { About } from './fold'

/** How a message names a comment of a review. */
const NAMED = /\[(c_[0-9a-z]{16})\]/g

export function foldReview({ project, put }: About, { type, data: d, at }: Envelope) {
  if (!project) return
  const reviewed = project.reviewed + 1
  const mark = (id: string, pushed: ReviewRow['pushed']) => project.reviews.map((r) => (r.id === id ? { ...r, pushed } : r))
  switch (type) {
    case 'review.opened': {
      const row: ReviewRow = { id: d.review_id, at, base: d.base, candidate: d.candidate, files: d.files, units: d.units, remote: d.remote ?? '', ref: d.ref ?? '' }
      put.project({ reviewed, reviews: [row, ...project.reviews] })
      break
    }
    case 'review.decided':
    case 'review.viewed':
    case 'review.comment_edited':
      put.project({ reviewed })
      break
    case 'review.commented':
      put.project({ reviewed, drafts: { ...project.drafts, [d.comment_id]: d.review_id } })
      break
    case 'review.comment_removed':
      put.project({ reviewed, drafts: without(project.drafts, [d.comment_id]) })
      break
    case 'review.comments_sent':
      put.project({ reviewed, drafts: without(project.drafts, d.comments ?? []) })
      break
    case 'message': {
      const ids = [...d.text.matchAll(NAMED)].flatMap((m) => m[1] ?? [])
      if (ids.length) put.project({ reviewed, ...(d.role === 'agent' ? {} : { drafts: without(project.drafts, ids) }) })
      break
    }
    case 'push.started':
      put.project({ reviewed, reviews: mark(d.review_id, 'running') })
      break
    case 'push.ended':
      put.project({ reviewed, reviews: mark(d.review_id, d.ok ? 'ok' : 'failed') })
      break
  }
}

function without(drafts: Record<string, string> | undefined, ids: string[]): Record<string, string> {
  return Object.fromEntries(Object.entries(drafts ?? {}).filter(([id]) => !ids.includes(id)))
}
