import type { ModulesContainer } from '@nestjs/core'
import { InvalidOptionError } from '../index.ts'

/** What Nest keeps on a method: the path of a handler, and its interceptors. */
const PATH = 'path'
const INTERCEPTORS = '__interceptors__'

/** The methods with a decorator of ours, by the prototype that has them. */
const guardedMethods = new WeakMap<object, Map<PropertyKey, object>>()

export function rememberGuarded(prototype: object, name: PropertyKey, interceptor: object): void {
  const methods = guardedMethods.get(prototype) ?? new Map<PropertyKey, object>()
  guardedMethods.set(prototype, methods.set(name, interceptor))
}

/**
 * Nest calls interceptors for handlers only. On another method a decorator would do nothing, and the code would run unlocked: the
 * application does not start.
 */
export function checkGuardedMethods(modules: ModulesContainer): void {
  for (const { controllers, providers } of modules.values()) {
    for (const { instance } of controllers.values()) checkInstance(instance, true)
    for (const { instance } of providers.values()) checkInstance(instance, false)
  }
}

function checkInstance(instance: unknown, isController: boolean): void {
  if (typeof instance !== 'object' || instance === null) return
  const seen = new Set<PropertyKey>()
  for (let type = prototypeOf(instance); type !== null; type = prototypeOf(type)) {
    for (const [name, interceptor] of guardedMethods.get(type) ?? []) {
      const method: unknown = Reflect.get(type, name)
      // A subclass that overrides a method decides about it.
      if (!seen.has(name) && !(isController && isHandler(method, interceptor))) throw noHandler(instance, name)
    }
    for (const name of Reflect.ownKeys(type)) seen.add(name)
  }
}

function prototypeOf(value: object): object | null {
  return Object.getPrototypeOf(value) as object | null
}

function isHandler(method: unknown, interceptor: object): boolean {
  if (typeof method !== 'function' || !Reflect.hasMetadata(PATH, method)) return false
  return (Reflect.getMetadata(INTERCEPTORS, method) as readonly object[] | undefined)?.includes(interceptor) === true
}

function noHandler(instance: object, name: PropertyKey): InvalidOptionError {
  return new InvalidOptionError(
    `${instance.constructor.name}.${String(name)} has a decorator of pg-lockstep/nest, and is no HTTP handler.`,
    {
      advice:
        'Use lockstep.transaction() or lockstep.lease() in it, or move the decorator to the handler. A decorator that replaces the method has to stand below.',
    },
  )
}
