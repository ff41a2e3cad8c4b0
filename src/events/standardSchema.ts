/**
 * A schema of any library that follows Standard Schema 1 (https://standardschema.dev), such as zod, valibot and arktype: taken by its
 * shape.
 */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1
    readonly vendor: string
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>
    readonly types?: { readonly input: Input; readonly output: Output } | undefined
  }
}

/** What a schema answers: a value, or issues. */
export type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] }

/** Why a value does not fit a schema. */
export interface SchemaIssue {
  readonly message: string
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined
}

/** What a schema takes. */
export type InputOf<Schema extends StandardSchema> = NonNullable<Schema['~standard']['types']>['input']

/** What a schema gives. */
export type OutputOf<Schema extends StandardSchema> = NonNullable<Schema['~standard']['types']>['output']

/** Libraries make schemas of objects and of functions. */
export function isSchema(given: unknown): given is StandardSchema {
  if ((typeof given !== 'object' && typeof given !== 'function') || given === null) return false
  const { '~standard': standard } = given as Partial<StandardSchema>
  return standard?.version === 1 && typeof standard.validate === 'function'
}
