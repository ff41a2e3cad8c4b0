import type { Answer, Draft } from './guard.ts'

/** A response that stands before the client while the handler runs: what is answered on it is kept. */
export interface HeldAnswer extends Draft {
  /** Before each attempt: the response as it was before the first. */
  begin(): void
  /** Resolves when this attempt has answered. */
  readonly answered: Promise<void>
  readonly isAnswered: boolean
  /** Rejects when this attempt can never end by itself. */
  readonly failed?: Promise<never>
  /** Holds no more. An attempt that has not answered leaves that to the framework, with the headers that it has set. */
  handBack(): void
  /** Sends what was answered. */
  letGo(): void
  replaceWith(answer: Answer): void
  /** The response as it was before the handler. */
  discard(): void
}

export interface Signal {
  readonly given: Promise<void>
  give(): void
}

export function signal(): Signal {
  let give: () => void = () => undefined
  const given = new Promise<void>((resolve) => (give = resolve))
  return { given, give }
}
