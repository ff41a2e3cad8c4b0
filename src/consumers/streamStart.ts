import { InvalidOptionError } from '../errors.ts'

/** Topic and key: what the numbers of events count in. */
export interface EventStream {
  readonly topic: string
  readonly key: string
}

/** The number with which a stream may begin where the broker has nothing of it. `anywhere`: with whatever comes first. */
export type StreamStart = number | 'anywhere'

/** The same for all streams, or a function that says it of each. */
export type StreamStartOption = StreamStart | ((stream: EventStream) => StreamStart)

const ADVICE = "Pass the number of the first event (a whole number from 1), 'anywhere', or a function that gives one."

const isStart = (start: unknown): start is StreamStart =>
  start === 'anywhere' || (Number.isSafeInteger(start) && (start as number) >= 1)

/** Checks the option; what comes out throws only if the caller's function does, or gives nonsense. */
export function startOf(option: StreamStartOption = 1): (stream: EventStream) => StreamStart {
  if (typeof option !== 'function') {
    if (!isStart(option)) throw new InvalidOptionError(`start is ${String(option)}.`, { advice: ADVICE })
    return () => option
  }
  return (stream) => {
    const start = option(stream)
    if (isStart(start)) return start
    throw new InvalidOptionError(`start gave ${String(start)} for ${stream.topic}/${stream.key}.`, { advice: ADVICE })
  }
}
