import { isLibrarySource, type Rule, roomOf } from './tree.ts'

const minEssayLines = 5

// The command line is entered by its bin, not imported: main.ts is its door.
const doors: Readonly<Record<string, string>> = { cli: 'main.ts' }

/** A room's door explains its protocol before it exports anything. */
export const roomEssay: Rule = {
  name: 'room-essay',
  find(tree) {
    const rooms = new Set(tree.files.filter(isLibrarySource).flatMap((file) => roomOf(file) ?? []))
    return [...rooms].flatMap((room) => {
      const file = `src/${room}/${doors[room] ?? 'index.ts'}`
      if (!tree.files.includes(file)) return [{ file, message: `the room ${room} has no door` }]
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
