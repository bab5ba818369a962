package server

import (
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// schemaPrefix begins the references to schemas.
const schemaPrefix = "#/components/schemas/"

// newRegistry returns a registry in which text types with few values are named enumerations.
func newRegistry() huma.Registry {
	r := huma.NewMapRegistry(schemaPrefix, schemaName)
	for _, t := range []reflect.Type{typeOf[wire.Duration](), typeOf[message.Duration](), typeOf[message.Delay](),
		typeOf[jsonfields.Duration]()} {
		r.RegisterTypeAlias(t, typeOf[Duration]())
	}
	r.RegisterTypeAlias(typeOf[message.Time](), typeOf[time.Time]())
	addEnum(r, store.StateScheduled, store.StateReady, store.StateLeased, store.StateDead)
	addEnum(r, store.DeadFailed, store.DeadLeaseExpired, store.DeadBuried, store.DeadExpired, store.DeadUnreadable)
	addEnum(r, append(view.EventKinds[:len(view.EventKinds):len(view.EventKinds)], later.EventMissed)...)
	addEnum(r, later.SendSent, later.SendDuplicate, later.SendReplaced, later.SendDebounced, later.SendFollows)
	addEnum(r, access.RoleRead, access.RoleSend, access.RoleWork, access.RoleOperate, access.RoleAdmin)
	return r
}

func addEnum[T ~string](r huma.Registry, values ...T) {
	s := &huma.Schema{Type: huma.TypeString}
	for _, value := range values {
		s.Enum = append(s.Enum, string(value))
	}
	s.PrecomputeMessages()
	t := typeOf[T]()
	r.Map()[t.Name()] = s
	r.RegisterTypeAlias(t, typeOf[enum[T]]())
}

// enum stands for a T in a registry.
type enum[T any] struct{}

// Schema returns a reference to the enumeration.
func (enum[T]) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Ref: schemaPrefix + typeOf[T]().Name()}
}

// neverNull marks the arrays of a schema and its parts as not null. Huma marks Go slices as nullable.
func neverNull(s *huma.Schema) {
	if s == nil {
		return
	}
	if s.Type == huma.TypeArray {
		s.Nullable = false
	}
	neverNull(s.Items)
	for _, property := range s.Properties {
		neverNull(property)
	}
	if values, ok := s.AdditionalProperties.(*huma.Schema); ok {
		neverNull(values)
	}
}

// schemaOf returns a reference to the schema of a type.
func (s *Server) schemaOf(t reflect.Type) *huma.Schema {
	return s.api.OpenAPI().Components.Schemas.Schema(t, true, "")
}

// typeOf returns the type that schemas are made from.
func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }
