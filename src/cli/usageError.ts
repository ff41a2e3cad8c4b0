/** The command line makes no sense. Nothing was sent. */
export class UsageError extends Error {
  static readonly exitCode = 2
  readonly advice: string

  constructor(message: string, advice: string) {
    super(message)
    this.name = 'UsageError'
    this.advice = advice
  }
}
