import { describe, expect, test } from 'vitest'
import { callCommand, type Ran } from '../../tools/server/testing/commandLine.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'

const database = await testDatabase()

const lockstep = (...args: string[]): Promise<Ran> => callCommand(['rollout', ...args], { url: database.url })

describe('lockstep rollout', () => {
  test('reports that every key is locked without rules', async () => {
    expect(await lockstep()).toMatchObject({ code: 0, stdout: 'There are no rules: every key is locked.\n' })
  })

  test('sets, lists and unsets rules, as text and as JSON', async () => {
    const set = await lockstep('set', 'Transfer:', '10%', '--reason', 'first tenth')
    expect(set).toMatchObject({ code: 0, stderr: '' })
    expect(set.stdout).toContain('Transfer: is 10%.')
    expect(set.stdout).toContain('first tenth')
    await lockstep('set', '', 'observe')
    const listed = await lockstep('--json')
    expect(JSON.parse(listed.stdout)).toMatchObject({
      ok: true,
      rules: [
        { prefix: '', mode: 'observe' },
        { prefix: 'Transfer:', mode: { percent: 10 }, reason: 'first tenth' },
      ],
    })
    expect((await lockstep('unset', 'Transfer:')).stdout).toContain('The rule for Transfer: is gone.')
    expect((await lockstep('unset', '')).stdout).toContain('There are no rules')
  })

  test.each([
    [['set'], 'No prefix was named.'],
    [['set', 'Transfer:'], 'No mode was named.'],
    [['set', 'Transfer:', '101%'], 'Unknown mode'],
    [['set', 'Transfer:', 'maybe'], 'Unknown mode'],
    [['unset', 'Transfer:', 'on'], 'takes a prefix and nothing else'],
    [['list'], 'does not know'],
    [['--reason', 'x'], '--reason is for'],
  ])('rejects %j before anything is sent', async (args, complaint) => {
    const { code, stderr } = await lockstep(...args)
    expect(code).toBe(2)
    expect(stderr).toContain(complaint)
  })
})
