import { cp } from 'node:fs/promises'
import { join } from 'node:path'
import { command } from '../check/command.ts'
import { linkOurs } from '../check/consumer.ts'
import { root, tool } from '../check/repository.ts'
import type { App } from './appProcess.ts'

const PACKAGES = [
  '@nestjs/common',
  '@nestjs/core',
  '@nestjs/platform-express',
  '@types/express',
  '@types/node',
  '@types/pg',
  'pg',
  'reflect-metadata',
  'rxjs',
]

/** Compiles the example in a project that has the packed package. */
export async function buildNestApp(project: string): Promise<App> {
  const example = join(root, 'examples', 'nest')
  for (const part of ['src', 'tsconfig.json']) await cp(join(example, part), join(project, part), { recursive: true })
  await linkOurs(project, PACKAGES)
  const { code, output } = await command(tool('tsc'), ['-p', 'tsconfig.json'], { cwd: project })
  if (code !== 0) throw new Error(`tsc exited with ${code}\n${output}`)
  return { program: process.execPath, args: () => ['--enable-source-maps', 'dist/main.js'], cwd: project }
}
