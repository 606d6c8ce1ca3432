export interface Loud {
  loud: boolean;
}

export enum Tone {
  Quiet,
  Loud,
}

export function said(text: string, tone: Tone): string {
  return tone === Tone.Loud ? text.toUpperCase() : text;
}
