import type { Rule } from './tree.ts'

const maxLines = 400

/** A file that nobody can hold in their head is two files. */
export const fileLength: Rule = {
  name: 'file-length',
  find(tree) {
    return (
      tree.files
        .filter((file) => /\.(ts|tsx|mts|js|mjs|css|sql)$/.test(file))
        // The dump is generated: its length is the schema's.
        .filter((file) => file !== 'sql/schema.sql')
        .flatMap((file) => {
          const lines = tree.read(file).trimEnd().split('\n').length
          return lines > maxLines ? [{ file, message: `${lines} lines, ${maxLines} at most` }] : []
        })
    )
  },
}
