import { expect, test } from 'vitest'
import { Framing, type Message } from './wireFraming.ts'

function message(type: string, content: string): Buffer {
  const length = Buffer.alloc(4)
  length.writeUInt32BE(4 + content.length)
  return Buffer.concat([Buffer.from(type), length, Buffer.from(content)])
}

function opening(code: number, content = ''): Buffer {
  const head = Buffer.alloc(8)
  head.writeUInt32BE(8 + content.length)
  head.writeUInt32BE(code, 4)
  return Buffer.concat([head, Buffer.from(content)])
}

const session = Buffer.concat([
  opening(80877103),
  opening(0x30000, 'user\0postgres\0\0'),
  message('Q', 'select 1\0'),
  message('P', '\0select $1\0\0\0'),
  message('B', 'QQQSSS'),
  message('S', ''),
  message('X', ''),
])
const types = ['encryption', 'startup', 'Q', 'P', 'B', 'S', 'X']

const typesOf = (messages: readonly Message[]): string[] => messages.map(({ type }) => type)

test('finds messages wherever chunks end, with the texts of statements', () => {
  for (let size = 1; size <= session.length; size++) {
    const framing = new Framing('frontend')
    const found: Message[] = []
    for (let at = 0; at < session.length; at += size) found.push(...framing.push(session.subarray(at, at + size)))
    expect(typesOf(found), `chunks of ${size}`).toEqual(types)
    expect(found.map(({ content }) => content.toString())).toEqual([
      '',
      '',
      'select 1\0',
      '\0select $1\0\0\0',
      'QQQSSS',
      '',
      '',
    ])
  }
})

test('reads the answer to a request for encryption as one byte', () => {
  const framing = new Framing('backend')
  framing.expectAnswer()
  const stream = Buffer.concat([Buffer.from('N'), message('R', '\0\0\0\0'), message('Z', 'I')])
  expect(typesOf(framing.push(stream))).toEqual(['answer N', 'R', 'Z'])
})

test('ignores encrypted data', () => {
  const framing = new Framing('backend')
  framing.goOpaque()
  expect(framing.push(session)).toEqual([])
})
