import { InvalidOptionError } from '../errors.ts'
import type { EventStream } from '../consumers/index.ts'

/**
 * A name for each stream, from a template with `{topic}` and `{key}`. What is filled in is encoded so that no two streams ever share a
 * name: between the two stands a character that no encoded text has.
 */
export function nameTemplate(
  option: string,
  template: unknown,
  encode: (text: string) => string,
  /** Matches a character that encoded text never has. */
  separator: RegExp,
): (stream: EventStream) => string {
  const parts =
    typeof template === 'string' ? /^([^]*)\{(topic|key)\}([^]*)\{(topic|key)\}([^]*)$/.exec(template) : null
  const [, before = '', first, between = '', second, after = ''] = parts ?? []
  const once = first !== undefined && first !== second && !/\{(?:topic|key)\}/.test(before + between + after)
  if (!once || !separator.test(between)) {
    throw new InvalidOptionError(`${option} is ${JSON.stringify(template) ?? String(template)}.`, {
      advice: `Name {topic} and {key} once each, with a character between them that keeps them apart: ${separator.source}.`,
    })
  }
  return first === 'topic'
    ? ({ topic, key }) => `${before}${encode(topic)}${between}${encode(key)}${after}`
    : ({ topic, key }) => `${before}${encode(key)}${between}${encode(topic)}${after}`
}
