import { effect, signal } from '@preact/signals'

export type Theme = 'auto' | 'light' | 'dark'

const KEY = 'lockstep.theme'

function remembered(): Theme {
  try {
    const found = localStorage.getItem(KEY)
    return found === 'light' || found === 'dark' ? found : 'auto'
  } catch {
    // Storage can be forbidden; the choice then lasts as long as the page.
    return 'auto'
  }
}

export const theme = signal<Theme>(remembered())

/** Goes up whenever colors may have changed: a canvas does not notice by itself. */
export const colours = signal(0)

/** To be called once. */
export function dress(): void {
  effect(() => {
    if (theme.value === 'auto') delete document.documentElement.dataset['theme']
    else document.documentElement.dataset['theme'] = theme.value
    try {
      if (theme.value === 'auto') localStorage.removeItem(KEY)
      else localStorage.setItem(KEY, theme.value)
    } catch {
      // As above.
    }
    colours.value = colours.peek() + 1
  })
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => (colours.value = colours.peek() + 1))
}
