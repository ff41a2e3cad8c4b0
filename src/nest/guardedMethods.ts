import type { ModulesContainer } from '@nestjs/core'
import { InvalidOptionError } from '../index.ts'

/** What Nest keeps on a method: the path of a handler, and its interceptors. */
const PATH = 'path'
const INTERCEPTORS = '__interceptors__'

/** The interceptors of our decorators, by the prototype and the name of their method. */
const guardedMethods = new WeakMap<object, Map<PropertyKey, readonly object[]>>()

export function rememberGuarded(prototype: object, name: PropertyKey, interceptor: object): void {
  const methods = guardedMethods.get(prototype) ?? new Map<PropertyKey, readonly object[]>()
  guardedMethods.set(prototype, methods.set(name, [...(methods.get(name) ?? []), interceptor]))
}

/**
 * Two mistakes keep the application from starting. Nest calls interceptors for handlers only, so on another method a decorator would do
 * nothing, and the code would run unlocked. And two decorators would be two transactions, whose commits have no order.
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
    for (const [name, interceptors] of guardedMethods.get(type) ?? []) {
      // A subclass that overrides a method decides about it.
      if (seen.has(name)) continue
      const method: unknown = Reflect.get(type, name)
      if (interceptors.length > 1) throw twoGuards(instance, name)
      if (!isController || !isHandler(method, interceptors)) throw noHandler(instance, name)
    }
    for (const name of Reflect.ownKeys(type)) seen.add(name)
  }
}

function prototypeOf(value: object): object | null {
  return Object.getPrototypeOf(value) as object | null
}

function isHandler(method: unknown, interceptors: readonly object[]): boolean {
  if (typeof method !== 'function' || !Reflect.hasMetadata(PATH, method)) return false
  const called = Reflect.getMetadata(INTERCEPTORS, method) as readonly object[] | undefined
  return interceptors.every((each) => called?.includes(each) === true)
}

function twoGuards(instance: object, name: PropertyKey): InvalidOptionError {
  return new InvalidOptionError(
    `${instance.constructor.name}.${String(name)} has two of @Locked(), @Exclusive() and @Idempotent().`,
    { advice: 'Use one of them. @Idempotent() has the option `lock`; inside @Exclusive() use lease.transaction().' },
  )
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
