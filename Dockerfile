# This image contains both programs, linked statically, and wget for health checks.
FROM golang:1.26-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY handoff/go.mod handoff/go.sum ./handoff/
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/ ./cmd/...

FROM alpine:3.22
RUN adduser -D -H -u 10001 grablab && install -d -o grablab /var/lib/grablab/results
COPY --from=build /out/ /usr/local/bin/
USER grablab
WORKDIR /var/lib/grablab
EXPOSE 8004 8005
CMD ["grabsvc"]
