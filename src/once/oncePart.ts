import type { Key } from '../locks/index.ts'
import type { NestedOnceOptions, OnceResult, OpenTransaction, Part } from '../transactions/index.ts'
import { onceWithin } from './once.ts'

/** `tx.once()`. */
export const oncePart: Part = {
  methods: {
    once<Value>(this: OpenTransaction, key: Key, options: NestedOnceOptions<Value>): Promise<OnceResult<Value>> {
      return onceWithin(this, key, options)
    },
  },
}
