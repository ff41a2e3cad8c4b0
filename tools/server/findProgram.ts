import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'

/** Debian puts servers where only root's PATH leads. */
export function findProgram(name: string): string | undefined {
  const places = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/local/sbin', '/usr/sbin', '/sbin']
  return places.map((place) => join(place, name)).find((file) => existsSync(file))
}
