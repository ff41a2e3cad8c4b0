import { expect, test } from 'vitest'
import { deadLinks } from './deadLinks.ts'

const pages = { 'index.html': '', 'guides/kafka.html': '<h2 id="order">Order</h2>', 'api/index.html': '' }

function deadOf(html: string): string[] {
  const all = new Map(Object.entries({ ...pages, 'guides/a.html': `<h1 id="a">A</h1>${html}` }))
  return deadLinks(all, new Set([...all.keys(), 'pictures/p.svg']))
}

test.each([
  '<a href="/guides/kafka.html#order">',
  '<a class="link" href="./kafka.html">',
  '<a href="/guides/kafka">',
  '<a href="/api/">',
  '<a href="/">',
  '<a href="#a">',
  '<img alt="" src="/pictures/p.svg">',
  '<a href="https://example.org/missing">',
  '<a href="mailto:a@example.org">',
])('accepts %s', (html) => {
  expect(deadOf(html)).toEqual([])
})

test.each([
  ['<a href="/guides/nats.html">', '/guides/nats.html'],
  ['<a href="/guides/kafka.html#price">', '/guides/kafka.html#price'],
  ['<a href="#b">', '#b'],
  ['<a href="/guides/">', '/guides/'],
  ['<img alt="" src="/pictures/q.svg">', '/pictures/q.svg'],
])('reports %s', (html, href) => {
  expect(deadOf(html)).toEqual([`guides/a.html: ${href}`])
})
