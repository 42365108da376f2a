import type { Envelope } from '../../api/types'
import type { ReviewRow } from '../state'
import type { About } from './fold'

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
      put.project({ reviewed })
      break
    case 'push.started':
      put.project({ reviewed, reviews: mark(d.review_id, 'running') })
      break
    case 'push.ended':
      put.project({ reviewed, reviews: mark(d.review_id, d.ok ? 'ok' : 'failed') })
      break
  }
}
