import type { ApiError, ModelConfig, ModelTry, ModelView } from '../../api/types'
import type { Desk } from '../../lib/desk.svelte'
import type { Tone } from '../../lib/words'

// How models are said, and what a new one begins with.

export const FORMATS: Record<ModelConfig['format'], string> = {
  'openai-chat': 'OpenAI Chat Completions',
  'openai-responses': 'OpenAI Responses',
  anthropic: 'Anthropic Messages',
}

/** Servers that are known by name: what a form is filled with. */
export interface Preset { id: string; name: string; hint: string; format: ModelConfig['format']; base_url: string; key_env: string; local: boolean; title: string }
export const PRESETS: Preset[] = [
  { id: 'openai', name: 'OpenAI', hint: 'OpenAI’s own address, over Responses.', format: 'openai-responses', base_url: '', key_env: 'OPENAI_API_KEY', local: false, title: 'openai' },
  { id: 'anthropic', name: 'Anthropic', hint: 'Anthropic’s own address, over Messages.', format: 'anthropic', base_url: '', key_env: 'ANTHROPIC_API_KEY', local: false, title: 'anthropic' },
  { id: 'compatible', name: 'Compatible', hint: 'Any server that speaks Chat Completions: give its address.', format: 'openai-chat', base_url: '', key_env: '', local: false, title: 'compatible' },
  { id: 'ollama', name: 'Ollama', hint: 'A server on this computer; it needs no key.', format: 'openai-chat', base_url: 'http://127.0.0.1:11434/v1', key_env: '', local: true, title: 'ollama' },
  { id: 'llamacpp', name: 'llama.cpp', hint: 'A server on this computer; it needs no key.', format: 'openai-chat', base_url: 'http://127.0.0.1:8080/v1', key_env: '', local: true, title: 'llamacpp' },
  { id: 'vllm', name: 'vLLM', hint: 'A server on this computer; it needs no key unless it was started with one.', format: 'openai-chat', base_url: 'http://127.0.0.1:8000/v1', key_env: '', local: true, title: 'vllm' },
]

export function keyWords(m: ModelView): { text: string; tone: Tone } {
  switch (m.key) {
    case 'keychain':
      return { text: 'Key in the keychain', tone: 'good' }
    case 'environment':
      return { text: `Key from ${m.key_env || 'the environment'}`, tone: 'good' }
    case 'none':
      return { text: 'No key set', tone: 'soft' }
  }
  return { text: 'No key', tone: 'wait' }
}

/** Why a model cannot be asked now; empty: it can. */
export const unusable = (m: ModelView): string => (m.key === 'missing' ? `It has no key${m.key_env ? `: ${m.key_env} is not set where the core runs` : ''}.` : (m.problem ?? ''))

const usd = (n: number): string => `$${n.toLocaleString('en-US', { maximumFractionDigits: 4 })}`
export function priceWords(m: ModelConfig): string {
  const p = m.price
  return p ? `${usd(p.input)} in, ${usd(p.output)} out per million tokens` : 'No price: what it costs is not known'
}

const KINDS: Record<string, string> = {
  auth: 'See whether the key is right, and whether it may use this model.',
  quota: 'See the account at the provider, then try again.',
  rate: 'Wait a moment, then try again.',
  busy: 'Wait a moment, then try again.',
  server: 'Wait a moment, then try again; if it stays so, see the server’s log.',
  network: 'See whether the server runs and whether the address is right.',
  timeout: 'See whether the server runs; a model that is read from disk first takes a while.',
  too_long: 'Give the model a larger context in its settings, if it has one.',
  invalid: 'See the format and the settings of the model.',
  not_found: 'See the model’s name as the server lists it, and the address.',
  protocol: 'See whether the server at this address speaks this format.',
}
/** What is to be done about an error of a model. */
export const kindHint = (kind: string | undefined): string => KINDS[kind ?? ''] ?? ''

/** An error's words without the word for its kind before them. */
export function plainly(text: string, kind: string | undefined): string {
  const rest = kind && text.startsWith(kind) ? text.slice(kind.length).replace(/^( \(HTTP (\d+)\))?: /, (_, __, status: string | undefined) => (status ? `HTTP ${status}: ` : '')) : text
  return rest || text
}

export const tryError = (t: ModelTry): ApiError => ({ code: t.code || t.kind || 'unavailable', what: plainly(t.error || 'the model gave no answer', t.kind), ...(t.hint || kindHint(t.kind) ? { hint: t.hint || kindHint(t.kind) } : {}) })

/** Goes to the models in the settings; with a name to its form, with '' to a new one. */
export function openModels(desk: Desk, form?: string) {
  desk.panel = ''
  desk.screen = 'settings'
  if (form !== undefined) desk.models.form = form
  // Once it is drawn.
  setTimeout(() => {
    const el = document.getElementById('models')
    el?.scrollIntoView({ block: 'start' })
    if (form === undefined) el?.focus({ preventScroll: true })
  })
}

/** Which field of the form an error is about: "" = none of them. */
export const FIELDS = ['name', 'format', 'model', 'base_url', 'key', 'key_env', 'context', 'max_output', 'effort', 'text_only', 'price/input', 'price/output', 'price/cache_read', 'price/cache_write'] as const
export type FieldName = (typeof FIELDS)[number]
export function fieldOf(err: ApiError): FieldName | '' {
  const at = (err.pointer ?? '').replace(/^\/?(body[/.])?/, '').replaceAll('.', '/')
  return FIELDS.find((f) => f === at) ?? ''
}

/** What a form holds, as text; the key is never part of it. */
export interface Form { was: string; preset: string; name: string; format: ModelConfig['format']; model: string; base_url: string; key_env: string; context: string; max_output: string; effort: string; text_only: boolean; input: string; output: string; cache_read: string; cache_write: string }

export const emptyForm = (): Form => ({ was: '', preset: '', name: '', format: 'openai-responses', model: '', base_url: '', key_env: '', context: '', max_output: '', effort: '', text_only: false, input: '', output: '', cache_read: '', cache_write: '' })
const text = (n: number | undefined): string => (n ? String(n) : '')
export const formOf = (m: ModelView): Form => ({
  was: m.name, preset: '', name: m.name, format: m.format, model: m.model, base_url: m.base_url ?? '', key_env: m.key_env ?? '', context: text(m.context), max_output: text(m.max_output), effort: m.effort ?? '', text_only: !!m.text_only,
  input: m.price ? String(m.price.input) : '', output: m.price ? String(m.price.output) : '', cache_read: text(m.price?.cache_read), cache_write: text(m.price?.cache_write),
})

/** The configuration that a form means, or what is wrong with it before the core is asked. */
export function configOf(f: Form): { config: ModelConfig } | { error: ApiError } {
  const bad = (pointer: FieldName, what: string, hint: string) => ({ error: { code: 'invalid', pointer: `/${pointer}`, what, hint } })
  const numbers: Partial<Record<'context' | 'max_output' | 'input' | 'output' | 'cache_read' | 'cache_write', number>> = {}
  for (const k of ['context', 'max_output', 'input', 'output', 'cache_read', 'cache_write'] as const) {
    const t = f[k].trim().replace(/^\$/, '')
    if (!t) continue
    const tokens = k === 'context' || k === 'max_output'
    const n = Number(tokens ? t.replaceAll(/[ ,_]/g, '') : t.replace(',', '.'))
    if (!Number.isFinite(n) || n < 0 || (tokens && !Number.isInteger(n))) return bad(tokens ? k : `price/${k}`, `“${f[k].trim()}” is no ${tokens ? 'number of tokens' : 'price'}`, tokens ? 'give a whole number, or nothing for the usual' : 'give US dollars per million tokens, or nothing')
    numbers[k] = n
  }
  const { input, output, cache_read, cache_write } = numbers
  const priced = [input, output, cache_read, cache_write].some((n) => n !== undefined)
  if (priced && input === undefined) return bad('price/input', 'the price of what it reads is missing', 'give it too, or leave all prices out')
  if (priced && output === undefined) return bad('price/output', 'the price of what it writes is missing', 'give it too, or leave all prices out')
  return {
    config: {
      name: f.name.trim(), format: f.format, model: f.model.trim(),
      ...(f.base_url.trim() ? { base_url: f.base_url.trim() } : {}), ...(f.key_env.trim() ? { key_env: f.key_env.trim() } : {}),
      ...(numbers.context ? { context: numbers.context } : {}), ...(numbers.max_output ? { max_output: numbers.max_output } : {}),
      ...(f.effort ? { effort: f.effort as 'low' | 'medium' | 'high' } : {}), ...(f.text_only ? { text_only: true } : {}),
      ...(priced ? { price: { input: input ?? 0, output: output ?? 0, ...(cache_read ? { cache_read } : {}), ...(cache_write ? { cache_write } : {}) } } : {}),
    },
  }
}
