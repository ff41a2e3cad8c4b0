/** Ends what runs with a number of shards that is not the dispatcher's any more. */
export class ShardsChanged extends Error {
  override readonly name = 'ShardsChanged'
}
