/** What is not known is null, so that every object has all its fields; a 64-bit number is text, or programs would round it. */
export function forJson<T extends object>(value: T): Record<keyof T, unknown> {
  const text = JSON.stringify(value, (_name, each: unknown) =>
    typeof each === 'bigint' ? String(each) : (each ?? null),
  )
  return JSON.parse(text) as Record<keyof T, unknown>
}
