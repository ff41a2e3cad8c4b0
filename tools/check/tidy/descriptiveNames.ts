import type { Rule } from './tree.ts'

const buckets = new Set([
  'common',
  'helper',
  'helpers',
  'interface',
  'interfaces',
  'misc',
  'type',
  'types',
  'util',
  'utils',
])

/** A name that fits anything attracts everything. Files and folders are called by what they do. */
export const descriptiveNames: Rule = {
  name: 'descriptive-names',
  find(tree) {
    return tree.files
      .filter((file) => /\.(ts|tsx|mts|cts|js|mjs|cjs)$/.test(file))
      .flatMap((file) => {
        const bucket = file.split('/').find((part) => buckets.has(part.replace(/\..*$/, '').toLowerCase()))
        return bucket === undefined ? [] : [{ file, message: `${bucket} says nothing: name it by what it does` }]
      })
  },
}
