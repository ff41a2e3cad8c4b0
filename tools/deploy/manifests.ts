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

/** The lists of arguments in a manifest that a desk is started with: JSON with single quotes, on one line or on several. */
export function deskArguments(text: string): string[][] {
  return [...text.matchAll(/(?:command|args):\s*(\[[^\]]*'--no-traffic'[^\]]*\])/g)].map(
    ([, list = '']) => JSON.parse(list.replaceAll("'", '"').replace(/,\s*\]$/, ']')) as string[],
  )
}
