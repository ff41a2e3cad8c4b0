import { expect, test } from 'vitest'
import { page } from './page.ts'
import { emptyForms } from './result.ts'
import { sampleRun } from './testing/sampleRun.ts'

test('shows what was run, where, and how to repeat it', () => {
  const html = page(sampleRun())
  for (const text of [
    'PostgreSQL 18.1, embedded',
    '8 x Some Processor',
    '4711',
    'npx lockstep prove --seed 4711',
    '2030-01-01',
  ])
    expect(html).toContain(text)
  expect(html).toContain('No Lockstep form broke a promise.')
  expect(html).toContain('2 of 2 naive forms were caught.')
  expect(html).toContain('skipped: no pgbouncer here')
  expect(html).toContain('holds')
})

test('has a picture for each caught naive form, linked from the table', () => {
  const html = page(sampleRun())
  expect(html.match(/<svg /g)).toHaveLength(2)
  for (const name of ['wallet', 'lease']) {
    expect(html).toContain(`href="#${name}-naive"`)
    expect(html).toContain(`<figure id="${name}-naive">`)
  }
  const ids = [...html.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id)
  expect(new Set(ids).size).toBe(ids.length)
  expect(html).not.toContain('Lockstep was caught')
})

test('shows a caught Lockstep form first, in red', () => {
  const html = page(sampleRun(true))
  expect(html).toContain('Lockstep broke a promise in 1 of 2 scenarios.')
  expect(html).toContain('1 of 1 goals do not hold.')
  const places = [
    '<h2 class="bad">Lockstep was caught</h2>',
    'id="lease-lockstep"',
    '<h2>Scenarios</h2>',
    'id="wallet-naive"',
  ].map((text) => html.indexOf(text))
  expect(places).not.toContain(-1)
  expect(places).toEqual(places.toSorted((one, other) => one - other))
})

test('marks forms that were not tried as neither caught nor correct', () => {
  const run = sampleRun()
  const leftovers = { name: 'leftovers', title: 'Leftovers', does: { naive: 'not looked at', lockstep: '' } }
  const looked = { ...emptyForms().lockstep, rounds: 3 }
  const html = page({
    ...run,
    scenarios: [...run.scenarios, { ...leftovers, forms: { naive: looked, lockstep: looked } }],
  })
  expect(html).toContain('2 of 2 naive forms were caught.')
  expect(html.slice(html.indexOf('not looked at'))).toMatch(
    /<span class="muted">·<\/span>[^]*<span class="good">0<\/span>/,
  )
  const naiveOnly = run.scenarios.map((each) => ({
    ...each,
    forms: { ...each.forms, lockstep: emptyForms().lockstep },
  }))
  const unproven = page({ ...run, scenarios: naiveOnly })
  expect(unproven).toContain('No Lockstep form was run.')
  expect(unproven).not.toContain('No Lockstep form broke a promise.')
})

test('loads nothing from other hosts and runs no script', () => {
  const html = page(sampleRun(true))
  expect(html).not.toMatch(/<script|<link|<img|@import|\ssrc=|url\((?!#)|javascript:|\son\w+=/i)
  expect(html.replaceAll('http://www.w3.org/2000/svg', '')).not.toMatch(/https?:/)
  expect(html).toContain('prefers-color-scheme:dark')
})

test('escapes all text', () => {
  const bad = `"><script>alert('1')</script>&`
  const run = sampleRun(true)
  const html = page({
    ...run,
    startedAt: bad,
    server: bad,
    machine: bad,
    replay: bad,
    scenarios: run.scenarios.map(({ forms }) => ({
      name: bad,
      title: bad,
      does: { naive: bad, lockstep: bad },
      forms,
    })),
    faults: run.faults.map((fault) => ({ ...fault, fault: bad, does: bad, skipped: bad })),
    goals: [{ name: bad, value: 1, goal: bad, holds: false }],
    violations: run.violations.map((each) => ({ ...each, invariant: bad, scenario: bad, text: bad })),
  })
  expect(html).not.toContain('<script')
  expect(html).not.toContain(`"><`.concat('script'))
  expect(html).toContain('&quot;&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;')
})

test('shows how many violations are not listed', () => {
  const run = sampleRun()
  expect(page(run)).toContain('All violations')
  expect(page({ ...run, violations: run.violations.slice(1) })).toContain('The first 1 of 2 violations')
})

test('says what a cluster kept, what it lost, and how that was noticed', () => {
  const counts = { promotions: 4, noticed: 4, lost: 17, diverged: 3, reported: 3, silent: 0 }
  const html = page({ ...sampleRun(), cluster: { replication: 'asynchronous', ...counts } })
  expect(html).toContain('<dt>Losses of acknowledged commits that the checkers found</dt><dd>17</dd>')
  expect(html).toContain('<dt>Streams that diverged without a report</dt><dd>0</dd>')
  expect(page(sampleRun())).not.toContain('<h2>Cluster</h2>')
})
