import { render } from 'preact'
import { dress } from '../../../console/src/theme.ts'
import { App } from './app.tsx'
import { watch } from './live.ts'

dress()
render(<App />, document.getElementById('page') as HTMLElement)
watch()
