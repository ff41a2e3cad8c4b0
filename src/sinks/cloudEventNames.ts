/** The attributes of CloudEvents that sinks set. */
export const ATTRIBUTES = [
  'specversion',
  'id',
  'source',
  'type',
  'subject',
  'time',
  'dataschema',
  'datacontenttype',
  'partitionkey',
] as const

/** What stands before them, in lower case, at whatever broker. */
const PREFIXES = ['ce-', 'ce_', 'cloudevents_'] as const

/** The names of the attributes that a sink has added to a message, of its headers in lower case: they have the id of the event. */
export function attributesIn(headers: ReadonlyMap<string, unknown>, id: string): readonly string[] {
  const prefix = PREFIXES.find((each) => headers.get(`${each}id`) === id)
  return prefix === undefined ? [] : ATTRIBUTES.map((name) => prefix + name)
}
