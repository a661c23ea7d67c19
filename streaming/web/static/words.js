// Times, ranges and names as people read them.

export function age(ms) {
  if (ms === null || ms === undefined) return "never";
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function clock(ms) {
  if (ms === null || ms === undefined) return "";
  return `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")}Z`;
}

export function exact(ms) {
  return `${new Date(ms).toISOString().slice(11, 23)}Z`;
}

export function range(offsets) {
  return offsets ? `[${offsets[0]}, ${offsets[1]})` : "";
}

export function percent(share) {
  if (share <= 0) return "0 %";
  if (share >= 1) return "100 %";
  return share < 0.01 ? "less than 1 %" : `${Math.min(99, Math.round(100 * share))} %`;
}

export function count(number, word, plural) {
  return `${number.toLocaleString("en")} ${number === 1 ? word : plural || `${word}s`}`;
}

export function subject(alert) {
  if (alert.topic !== null && alert.topic !== undefined) return `${alert.topic}-${alert.partition}`;
  if (alert.cause) {
    const many = alert.members_count ? count(alert.members_count, "partition") : "";
    return [alert.cause === "cluster" ? "" : alert.cause, many].filter(Boolean).join(", ");
  }
  return alert.place || (alert.broker !== null ? `broker ${alert.broker}` : "the cluster");
}

export function partitionLink(cluster, topic, partition, at) {
  const path = [cluster, topic, partition].map(encodeURIComponent).join("/");
  return `#/partition/${path}${at ? `?at=${at}` : ""}`;
}
