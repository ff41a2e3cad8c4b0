/** The working directory has no driver of PostgreSQL. */
export class DriverMissingError extends Error {
  readonly advice: string

  constructor(candidates: readonly string[], directory: string) {
    super(
      `${candidates.length > 1 ? 'Neither ' : ''}${candidates.join(' nor ')} is ${candidates.length > 1 ? '' : 'not '}installed in ${directory}.`,
    )
    this.name = 'DriverMissingError'
    this.advice = `Run \`npm install ${candidates[0]}\` there, or start this in the directory of your application.`
  }
}
