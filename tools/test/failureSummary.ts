import type { Reporter, SerializedError, TestModule } from 'vitest/node'

/**
 * What failed, a line each, as the last thing that is printed: of a long log in CI often only the end is kept. And which tests passed
 * at the second try only: they are to be mended, or they have found something.
 */
export default class FailureSummary implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    const failed = modules.flatMap((module) => [
      ...module.errors().map((error) => `${module.relativeModuleId}: ${brief(error)}`),
      ...[...module.children.allTests('failed')].map(
        (test) => `${module.relativeModuleId} > ${test.fullName}: ${test.result().errors?.map(brief).join('; ')}`,
      ),
    ])
    failed.push(...unhandled.map((error) => `unhandled: ${brief(error)}`))
    const flaky = modules.flatMap((module) =>
      [...module.children.allTests('passed')]
        .filter((test) => test.diagnostic()?.flaky === true)
        .map((test) => `${module.relativeModuleId} > ${test.fullName}: ${test.result().errors?.map(brief).join('; ')}`),
    )
    // After the summary, which the reporter before this one prints at the same moment.
    setImmediate(() => {
      tell('Passed at the second try only', flaky)
      tell('Failed', failed)
    })
  }
}

function tell(heading: string, lines: readonly string[]): void {
  if (lines.length > 0) process.stdout.write(`\n${heading}:\n${lines.map((line) => `  ${line}\n`).join('')}`)
}

function brief({ name, message, stack = '' }: { name?: string; message: string; stack?: string | undefined }): string {
  const where = /\b((?:src|tools|proofs|bench|desk|examples)\/[^\s)]+:\d+):\d+/.exec(stack)?.[1] ?? ''
  return `${name ?? 'Error'}: ${message.split('\n', 4).join(' ').slice(0, 300)} ${where}`
}
