import { render } from 'preact'
import { App } from './app.tsx'
import { begin } from './live/stream.ts'
import { dress } from './theme.ts'

dress()
begin()
render(<App />, document.getElementById('page') as HTMLElement)
