import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { root } from '../check/repository.ts'
import { pinned } from '../matrix/versions.ts'

const folder = join(root, '.github', 'workflows')
const workflows = readdirSync(folder).map((name) => ({ name, text: readFileSync(join(folder, name), 'utf8') }))
const textOf = (name: string): string => workflows.find((each) => each.name === name)?.text ?? ''
const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { scripts: Record<string, string> }

test('runs only scripts that package.json has', () => {
  const run = workflows.flatMap(({ text }) => [...text.matchAll(/\bnpm run ([\w:]+)/g)].map(([, script]) => script))
  expect(run.length).toBeGreaterThan(0)
  for (const script of run) expect(Object.keys(scripts)).toContain(script)
})

test('the matrix has the versions that are pinned for it', () => {
  const list = (kind: 'pg' | 'node'): string =>
    pinned(kind)
      .map(({ major }) => major)
      .join(', ')
  expect(textOf('matrix.yml')).toContain(`postgres: [${list('pg')}]`)
  expect(textOf('matrix.yml')).toContain(`node: [${list('node')}]`)
})

test('starts with the right to read only, and keeps no credentials in the checkout', () => {
  for (const { name, text } of workflows) {
    expect(text, name).toMatch(/^permissions:\n {2}contents: read$/m)
    const checkouts = text.split('uses: actions/checkout@').length - 1
    expect(text.split('persist-credentials: false').length - 1, name).toBe(checkouts)
  }
})

test('every job that runs steps has a limit of time', () => {
  for (const { name, text } of workflows) {
    const jobs =
      text
        .split(/^jobs:$/m)[1]
        ?.split(/^ {2}(?=\w+:$)/m)
        .slice(1) ?? []
    expect(jobs.length, name).toBeGreaterThan(0)
    for (const job of jobs) if (job.includes('steps:')) expect(job, name).toContain('timeout-minutes:')
  }
})

test('publishes with provenance, and only after all tests and the matrix', () => {
  const release = textOf('release.yml')
  expect(release).toContain('needs: [ready, test, matrix]')
  expect(release).toMatch(/npm publish .*--provenance/)
  expect(release).toContain('id-token: write')
})
