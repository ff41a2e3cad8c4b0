import { OpenAPIHono, type RouteConfig, z } from '@hono/zod-openapi'
import { ProblemError } from './problem.ts'
import { type ProblemCode, PROBLEMS, problemTable } from './problems.ts'

/** Routes of a system, whose input is checked before the handler sees it. */
export function newRoutes(): OpenAPIHono {
  return new OpenAPIHono({
    defaultHook: (result, c) => (result.success ? undefined : invalid(result.target, result.error).answer(c)),
  })
}

function invalid(target: string, { issues }: z.ZodError): ProblemError {
  const where = target === 'json' ? 'body' : target
  const fields = issues.flatMap((issue) => {
    const { path, message } = issue
    // A field without an effect would mislead the client.
    if (issue.code === 'unrecognized_keys')
      return issue.keys.map((name) => ({
        in: where,
        field: [...path, name].join('.'),
        message: 'is not known here',
      }))
    return [{ in: where, field: path.join('.'), message }]
  })
  const detail = fields.map(({ field, message }) => (field === '' ? message : `${field}: ${message}`)).join('; ')
  return new ProblemError('invalid-request', detail, { members: { fields } })
}

/** What names an account, a wallet, an instance. */
export const Id = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/, 'use 1 to 100 letters, digits, points, dashes and underscores')
  .openapi({ example: 'alice' })

/** Money, in cents. */
export const Amount = z
  .int('use a whole number of cents')
  .positive('must be above 0')
  .max(1_000_000_000_000)
  .openapi({ example: 1250 })

export const IdInPath = z.object({ id: Id })

/** Repeated by a client that repeats its request: it is done once. */
export const RetryHeaders = z.object({
  'idempotency-key': z
    .string()
    .max(257)
    .optional()
    .openapi({ description: 'A value of your own making. A retry with the same value gets the first answer.' }),
})

const ProblemDocument = z
  .object({
    type: z.string().openapi({
      description:
        'The code behind `urn:lockstep-desk:problem:`, or behind `urn:pg-lockstep:problem:` if the library answers.',
      example: 'urn:lockstep-desk:problem:not-found',
    }),
    title: z.string(),
    status: z.int(),
    code: z.enum(Object.keys(PROBLEMS) as [ProblemCode]).openapi({
      description: ['| status | code | |', '|---|---|---|', ...problemTable()].join('\n'),
      example: 'not-found',
    }),
    detail: z.string(),
    instance: z.string().optional(),
    fields: z.array(z.object({ in: z.string(), field: z.string(), message: z.string() })).optional(),
  })
  .openapi('Problem')

const REFUSALS: Readonly<Record<number, string>> = {
  400: 'The request is not valid.',
  404: 'There is no such thing.',
  409: 'Another request works on it, or was quicker.',
  412: 'It is in another state than the request expects.',
  422: 'It cannot be done, or the Idempotency-Key was used for another request.',
  503: 'Not just now; try again after Retry-After.',
}

/** A body that must be there, must be JSON, and has no other members than these. */
export function jsonBody<Schema extends z.ZodObject>(schema: Schema) {
  return { required: true, content: { 'application/json': { schema: schema.strict() as unknown as Schema } } } as const
}

/** The answers of a route for the OpenAPI document: what it gives, and the refusals that it knows. */
export function answers(
  given: Readonly<Record<number, readonly [description: string, schema: z.ZodType]>>,
  refusals: readonly (keyof typeof REFUSALS)[] = [400],
): RouteConfig['responses'] {
  const good = Object.entries(given).map(([status, [description, schema]]) => [
    status,
    { description, content: { 'application/json': { schema } } },
  ])
  const bad = refusals.map((status) => [
    String(status),
    { description: REFUSALS[status], content: { 'application/problem+json': { schema: ProblemDocument } } },
  ])
  return Object.fromEntries([...good, ...bad]) as RouteConfig['responses']
}
