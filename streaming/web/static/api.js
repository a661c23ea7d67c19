// The API of this server, and nothing else.

export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function answer(response) {
  if (response.status === 204) return null;
  let body = null;
  try {
    body = await response.json();
  } catch {
    body = null;
  }
  if (!response.ok) {
    const detail = body && body.detail;
    const text = Array.isArray(detail) ? detail.map((each) => each.msg).join("; ") : detail;
    throw new ApiError(response.status, text || `the server answered ${response.status}`);
  }
  return body;
}

export async function get(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters || {})) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") query.append(name, each);
    }
  }
  const text = query.toString();
  return answer(await fetch(`/api/v1/${path}${text ? `?${text}` : ""}`));
}

export async function send(method, path, body) {
  return answer(
    await fetch(`/api/v1/${path}`, {
      method,
      headers: { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    }),
  );
}

// Calls back whenever there is something new, and when the connection is lost or back.
export function listen(onChange, onLost) {
  const source = new EventSource("/api/v1/events");
  source.addEventListener("change", (event) => onChange(JSON.parse(event.data)));
  source.addEventListener("error", () => onLost());
  return source;
}
