import type { ComponentChildren, JSX } from 'preact'

/** What to expect where there is nothing yet. */
export function Empty({
  title,
  children,
}: {
  readonly title: string
  readonly children: ComponentChildren
}): JSX.Element {
  return (
    <div class="empty">
      <p>
        <strong>{title}</strong>
      </p>
      <p>{children}</p>
    </div>
  )
}

/** In the place of what comes in a moment. */
export function Skeleton({ lines = 6 }: { readonly lines?: number }): JSX.Element {
  return (
    <div class="skeleton">
      <span class="unseen">Loading …</span>
      {Array.from({ length: lines }, (_, line) => (
        <div key={line} />
      ))}
    </div>
  )
}
