import { describe } from 'vitest'
import { findChromium } from '../../console/browser/chromium.ts'
import { attackScaledDown } from './scaledDown.ts'
import { showAttack } from './show.ts'

describe.skipIf(findChromium() === undefined)('attack show', () => attackScaledDown(showAttack))
