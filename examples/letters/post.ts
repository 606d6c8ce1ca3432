/** The two folders of the letterbox. */
export interface Post {
  inbox: string;
  outbox: string;
}

/** Whether a name, which may be an agent's, stays within the letterbox. */
export function isSafe(name: string): boolean {
  return /^[a-z0-9][a-z0-9-]{0,39}$/.test(name);
}
