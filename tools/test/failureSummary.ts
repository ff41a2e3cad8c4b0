import type { Reporter, SerializedError, TestModule } from 'vitest/node'

/** Prints what failed, one line each, as the last thing: CI often keeps only the end of a long log. */
export default class FailureSummary implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    const failed = modules.flatMap((module) => [
      ...module.errors().map((error) => `${module.relativeModuleId}: ${brief(error)}`),
      ...[...module.children.allTests('failed')].map(
        (test) => `${module.relativeModuleId} > ${test.fullName}: ${test.result().errors?.map(brief).join('; ')}`,
      ),
    ])
    failed.push(...unhandled.map((error) => `unhandled: ${brief(error)}`))
    // After the summary, which the reporter before this one prints at the same moment.
    setImmediate(() => {
      if (failed.length > 0) process.stdout.write(`\nFailed:\n${failed.map((line) => `  ${line}\n`).join('')}`)
    })
  }
}

function brief({ name, message, stack = '' }: { name?: string; message: string; stack?: string | undefined }): string {
  const where = /\b((?:src|tools|proofs|bench|desk|examples)\/[^\s)]+:\d+):\d+/.exec(stack)?.[1] ?? ''
  return `${name ?? 'Error'}: ${message.split('\n', 4).join(' ').slice(0, 300)} ${where}`
}
