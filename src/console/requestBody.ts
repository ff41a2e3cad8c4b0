import { refusal } from './responses.ts'

const MAX_BODY_BYTES = 16 * 1024

/** The body of a request, which must be JSON and short; or the answer to one that is not. */
export async function readJson(request: Request): Promise<{ readonly body: unknown } | Response> {
  const contentType = request.headers.get('content-type') ?? ''
  if (!/^application\/json(?:\s*;|$)/i.test(contentType)) {
    return refusal(415, 'not-json', 'Not JSON', 'Send content-type: application/json.')
  }
  const bytes = await readShort(request)
  if (bytes === undefined) {
    const detail = `The body may have ${MAX_BODY_BYTES} bytes.`
    // What is left of it is not worth reading.
    return refusal(413, 'too-large', 'Too large', detail, { connection: 'close' })
  }
  try {
    const body: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
    if (typeof body === 'object' && body !== null && !Array.isArray(body)) return { body }
  } catch {
    // Said below.
  }
  return refusal(400, 'not-json', 'Not JSON', 'The body is no JSON object.')
}

async function readShort({ headers, body }: Request): Promise<Uint8Array | undefined> {
  if (Number(headers.get('content-length') ?? 0) > MAX_BODY_BYTES) return undefined
  if (body === null) return new Uint8Array()
  const chunks: Uint8Array[] = []
  let size = 0
  const reader = (body as ReadableStream<Uint8Array>).getReader()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return Buffer.concat(chunks)
    size += value.byteLength
    if (size > MAX_BODY_BYTES) {
      reader.cancel().catch(() => undefined)
      return undefined
    }
    chunks.push(value)
  }
}
