import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

export const deployFolder = join(import.meta.dirname, '../../deploy')

/** A file of deploy/, by its path there. */
export function manifest(path: string): string {
  return readFileSync(join(deployFolder, path), 'utf8')
}

export function kubernetesFiles(): string[] {
  return readdirSync(join(deployFolder, 'kubernetes'))
    .filter((name) => name.endsWith('.yaml'))
    .map((name) => `kubernetes/${name}`)
}

/** The lists of arguments in a manifest that a desk is started with. They are written on one line, in the form of JSON with single quotes. */
export function deskArguments(text: string): string[][] {
  return [...text.matchAll(/^\s*(?:command|args): (\[.*'--no-traffic'.*\])$/gm)].map(
    ([, list = '']) => JSON.parse(list.replaceAll("'", '"')) as string[],
  )
}
