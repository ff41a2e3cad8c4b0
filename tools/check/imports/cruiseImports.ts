import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { allExtensions, cruise, type ICruiseResult } from 'dependency-cruiser'
import type { Manifest } from '../tarball.ts'
import { importRules } from './rules.ts'

// tools/ serves all of them and is free to import any file.
const folders = ['src', 'desk', 'console', 'proofs', 'bench', 'examples']

/** Reads the imports of all programs below `root` and judges them by the import rules. */
export async function cruiseImports(root: string): Promise<ICruiseResult> {
  // Without the API of a TypeScript compiler, dependency-cruiser skips TypeScript files and reports nothing.
  if (!allExtensions.some(({ extension, available }) => extension === '.ts' && available)) {
    throw new Error('dependency-cruiser finds no TypeScript API: "typescript" in package.json must be older than 7')
  }
  const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Manifest
  const { output } = await cruise(folders, {
    baseDir: root,
    validate: true,
    ruleSet: { forbidden: importRules(exports).map((rule) => ({ ...rule, severity: 'error' })) },
    tsPreCompilationDeps: true,
    doNotFollow: '^(tools|dist)/',
    skipAnalysisNotInRules: true,
    exclude: '(^|/)node_modules/',
    // Without the exports map, `pg-lockstep` keeps its name instead of the file in dist/.
    enhancedResolveOptions: { exportsFields: [] },
  })
  if (typeof output === 'string') throw new Error(output)
  return output
}
