import { isLibrarySource, type Rule, moduleOf } from './tree.ts'

const minEssayLines = 5

// The command line is entered by its bin, not imported: main.ts is its entry file.
const entryFiles: Readonly<Record<string, string>> = { cli: 'main.ts' }

/** A module's entry file explains its protocol before it exports anything. Hand-written: linters look at comments of names. */
export const moduleEssay: Rule = {
  name: 'module-essay',
  find(tree) {
    const modules = new Set(tree.files.filter(isLibrarySource).flatMap((file) => moduleOf(file) ?? []))
    return [...modules].flatMap((module) => {
      const file = `src/${module}/${entryFiles[module] ?? 'index.ts'}`
      if (!tree.files.includes(file)) return [{ file, message: `the module ${module} has no entry file` }]
      const essay = /^(?:#![^\n]*\n)?\s*\/\*[^]*?\*\//.exec(tree.read(file))?.[0].trim() ?? ''
      const lines = essay.replace(/^#![^\n]*\n\s*/, '').split('\n').length
      if (lines >= minEssayLines) return []
      return [
        {
          file,
          line: 1,
          message: `begins with an essay on its protocol: a block comment of ${minEssayLines} lines or more`,
        },
      ]
    })
  },
}
