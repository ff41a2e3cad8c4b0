import type { Reporter, SerializedError, TestModule } from 'vitest/node'

/**
 * What failed, a line each, as the last thing that is printed: of a long log in CI often only the end is kept.
 */
export default class LastWords implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    const lines = modules.flatMap((module) => [
      ...module.errors().map((error) => `${module.relativeModuleId}: ${brief(error)}`),
      ...[...module.children.allTests('failed')].map(
        (test) => `${module.relativeModuleId} > ${test.fullName}: ${test.result().errors?.map(brief).join('; ')}`,
      ),
    ])
    lines.push(...unhandled.map((error) => `unhandled: ${brief(error)}`))
    // After the summary, which the reporter before this one prints at the same moment.
    if (lines.length > 0)
      setImmediate(() => process.stdout.write(`\nFailed:\n${lines.map((line) => `  ${line}\n`).join('')}`))
  }
}

function brief({ name, message, stack = '' }: { name?: string; message: string; stack?: string | undefined }): string {
  const where = /\b((?:src|tools|proofs|bench|desk|examples)\/[^\s)]+:\d+):\d+/.exec(stack)?.[1] ?? ''
  return `${name ?? 'Error'}: ${message.split('\n', 4).join(' ').slice(0, 300)} ${where}`
}
