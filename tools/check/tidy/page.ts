/** A block of code in a page. */
export interface Block {
  readonly language: string
  readonly body: string
  /** Where the body begins. */
  readonly offset: number
}

const fence = /^ {0,3}(`{3,}|~{3,})(\w*)[^\n]*\n([^]*?)^ {0,3}\1[`~]*\s*$/gm

export function blocksOf(page: string): Block[] {
  return [...page.matchAll(fence)].map(({ 0: block, 2: language = '', 3: body = '', index }) => {
    return { language, body, offset: index + block.indexOf('\n') + 1 }
  })
}

/** The page with its blocks of code blanked out; lines keep their numbers. */
export function proseOf(page: string): string {
  return page.replaceAll(fence, blanked)
}

export function blanked(text: string): string {
  return text.replaceAll(/[^\n]/g, ' ')
}
